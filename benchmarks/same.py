"""Does the code of today learn exactly what another commit learned? Compares them bit for bit.

    python -m benchmarks.same 7ac8796                     all runs, against version 0.2
    python -m benchmarks.same b8731a0 pong catch          only these, against version 0.1
    python -m benchmarks.same 7ac8796 --cache FILE.json   keeps the digests of the other commit

Each run trains a preset twice on this machine from seed 11, once by each commit, in a process of
its own, and the digests of the parameters at its end are compared. ``gorila-catch`` samples from
replay buffers of several learners, for which the command line refuses ``--deterministic``, so its
roles run inline: one after the other in one thread. A digest is no digest of another processor.

The other commit is checked out into a temporary folder; it runs with the packages that are
installed here. Exit code 1 if a digest differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent
SEED, UPDATES = 11, 20

RUNS = {
    "pong": f"pong --steps {4096 + UPDATES * 2048}",
    "catch": f"catch --steps {512 + UPDATES * 512}",
    "dba3c-catch": f"dba3c-catch --steps {512 + UPDATES * 2 * 72}",
    "dqn-pong": "dqn-pong --steps 2400 --capacity 4000 --minimum 800 --random-steps 400",
    "pqn-catch": "pqn-catch --steps 12000",
    "lstm": "catch --steps 6000 --recurrent lstm",
    "group": "catch --steps 12000 --learners 2 --reduce group",
}
"""The words of a run behind ``train``, by its name. The steps of the first three are the random
ones at the start and those of 20 batches of all learners."""

INLINE = """
import ast, hashlib, importlib, sys
from dataclasses import replace
from pathlib import Path
import torch

package = Path(sys.argv[1])


def find(*names):
    "Return the first of these functions or classes that any module of the package defines."
    for name in names:
        for path in sorted(package.rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source if name in source else "")
            if any(getattr(node, "name", "") == name for node in tree.body):
                parts = path.relative_to(package.parent).with_suffix("").parts
                module = importlib.import_module(".".join(p for p in parts if p != "__init__"))
                return getattr(module, name)
    raise SystemExit(f"none of {names} in {package}")


Deadline, Inline, preset = find("Deadline"), find("Inline"), find("preset")
begin, make_graph = find("begin"), find("make_role_graph", "make_graph", "draw")

torch.set_num_threads(1)
found = preset("gorila-catch")
experiment = found[0] if isinstance(found, tuple) else found
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
"""A run whose roles are called in turn. It finds what it imports by name, as modules move."""


def main(words: list[str]) -> int:
    """Compare; return the exit code."""
    names = [*RUNS, "gorila-catch"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="the other commit")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"some of {', '.join(names)}")
    parser.add_argument("--cache", type=Path, help="file with the digests of other commits")
    given = parser.parse_intermixed_args(words)
    if unknown := set(given.runs) - set(names):
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", given.commit], check=True, capture_output=True, text=True
    ).stdout.strip()
    cache = read(given.cache)
    known = cache.setdefault(commit, {})
    same = True
    with ExitStack() as stack:
        other = None
        for name in given.runs or names:
            if name not in known:
                other = other or stack.enter_context(checked_out(commit))
                known[name] = digest_of(name, other)
                if given.cache:
                    given.cache.write_text(json.dumps(cache, indent=1), encoding="utf-8")
            before, now = known[name], digest_of(name, ROOT)
            same = same and before == now
            verdict = "same" if before == now else "NOT the same"
            print(f"{name:<14}{verdict:<14}{before[:16]} {now[:16]}", flush=True)
    return 0 if same else 1


def read(cache: Path | None) -> dict[str, dict[str, str]]:
    """Return the known digests, by commit and run."""
    if cache is None or not cache.exists():
        return {}
    found: dict[str, dict[str, str]] = json.loads(cache.read_text(encoding="utf-8"))
    return found


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


def command_of(tree: Path) -> tuple[str, str]:
    """Return the module and the function of the command line of the source in ``tree``."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = next(iter(project["scripts"].values())).partition(":")
    return module, function


def start_of(tree: Path) -> list[str]:
    """Return the words that start the command line of the source in ``tree``."""
    module, function = command_of(tree)
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


def package_of(tree: Path) -> str:
    """Return the name of the package in ``tree``."""
    return command_of(tree)[0].partition(".")[0]


def environment_of(tree: Path) -> dict[str, str]:
    """Return the environment in which Python finds the source in ``tree``."""
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def digest_of(name: str, tree: Path) -> str:
    """Return the digest of what the source in ``tree`` learns in a run."""
    if name not in RUNS:
        package = tree / "src" / package_of(tree)
        return done([sys.executable, "-c", INLINE, str(package)], tree).strip()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [*start_of(tree), "train", *RUNS[name].split(), "--seed", str(SEED)]
        done([*words, "--deterministic", "--no-finish", "--out", str(run)], tree)
        tensors = load_file(sorted((run / "checkpoints").glob("*.safetensors"))[-1])
    digest = hashlib.sha256()
    for key in sorted(tensors):
        if key.startswith("parameter/"):
            digest.update(tensors[key].tobytes())
    return digest.hexdigest()


def done(words: list[str], tree: Path) -> str:
    """Run a command with the source in ``tree``; return what it prints."""
    ended = subprocess.run(
        words, env=environment_of(tree), capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{' '.join(words)}: {ended.stdout}{ended.stderr}")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
