"""Does the code of today learn exactly what another commit learned? Compares them bit for bit.

    python benchmarks/same.py b8731a0              all four presets, against version 0.1
    python benchmarks/same.py b8731a0 pong catch   only these

Each preset is trained twice on this machine from seed 11, once by each commit, in a process of its
own, and the digests of the parameters after 20 updates are compared. ``gorila-catch`` samples from
a replay buffer, for which the command line refuses ``--deterministic``, so its roles run inline:
one after the other in one thread. A digest is no digest of another processor.

The other commit is checked out into a temporary folder; it runs with the packages that are
installed here. Exit code 1 if a digest differs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent
SEED, UPDATES = 11, 20

STEPS = {
    "pong": 4096 + UPDATES * 2048,
    "catch": 512 + UPDATES * 512,
    "dba3c-catch": 512 + UPDATES * 2 * 72,
}
"""Random steps at the start, and those of 20 batches of all learners."""

INLINE = """
import hashlib, sys
from dataclasses import replace
try:
    from gelada.core.errors import Deadline
    from gelada.runtime.inline import Inline
    from gelada.training.presets import preset
    from gelada.training.start import begin
    from gelada.training.topology import make_graph
except ImportError:  # version 0.1
    from gelada.draw import draw as make_graph
    from gelada.errors import Deadline
    from gelada.place.inline import Inline
    from gelada.presets import preset
    from gelada.start import begin
import torch

torch.set_num_threads(1)
experiment, _ = preset("gorila-catch")
experiment = replace(experiment, seed=SEED)
runtime = Inline(make_graph(experiment, begin(experiment), None, patience=0.0))
learner = runtime.roles["learner-0"]
actors = [role for role in runtime.active if role.name.startswith("actor")]
learners = [role for role in runtime.active if role.name.startswith("learner")]
while learner.clock.steps < UPDATES:
    for role in (*actors, *learners):
        try:
            role.step()
        except Deadline:  # the rate limiter lets this role wait
            pass
servers = [role for name, role in runtime.roles.items() if name.startswith("server")]
digest = hashlib.sha256()
for server in servers:
    digest.update(server.state()[0].values.numpy().tobytes())
print(digest.hexdigest())
""".replace("SEED", str(SEED)).replace("UPDATES", str(UPDATES))


def main(words: list[str]) -> int:
    """Compare; return the exit code."""
    if not words:
        print(__doc__)
        return 2
    commit, names = words[0], words[1:] or [*STEPS, "gorila-catch"]
    same = True
    with tempfile.TemporaryDirectory() as folder, checked_out(commit) as other:
        for name in names:
            before, now = (digest_of(name, tree, Path(folder)) for tree in (other, ROOT))
            same = same and before == now
            verdict = "the same" if before == now else "NOT the same"
            print(f"{name:<14}{verdict}  {before[:16]} {now[:16]}", flush=True)
    return 0 if same else 1


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder; yield the folder."""
    git = ["git", "-C", str(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([*git, "worktree", "add", "-q", "--detach", tree, commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)


def gelada(tree: Path) -> list[str]:
    """Return the words that start the command line of the source in ``tree``."""
    new = (tree / "src" / "gelada" / "cli").is_dir()  # else version 0.1
    module = "gelada.cli.main" if new else "gelada.cli"
    return [sys.executable, "-c", f"from {module} import main; main()"]


def environment_of(tree: Path) -> dict[str, str]:
    """Return the environment in which Python finds the source in ``tree``."""
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def digest_of(name: str, tree: Path, folder: Path) -> str:
    """Return the digest of what the source in ``tree`` learns of a preset."""
    environment = environment_of(tree)
    if name not in STEPS:
        words = [sys.executable, "-c", INLINE]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} in {tree}: {done.stderr}")
        return done.stdout.strip()
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    words = [*gelada(tree), "train", name, "--seed", str(SEED), "--deterministic"]
    words += ["--steps", str(STEPS[name]), "--out", str(run), "--no-finish"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} in {tree}: {done.stdout}{done.stderr}")
    tensors = load_file(sorted((run / "checkpoints").glob("*.safetensors"))[-1])
    digest = hashlib.sha256()
    for key in sorted(tensors):
        if key.startswith("parameter/"):
            digest.update(tensors[key].tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
