"""Does the code of today learn exactly what another commit learned? Compares them bit for bit.

    python -m benchmarks.same 7ac8796                     all runs, against version 0.2
    python -m benchmarks.same b8731a0 pong catch          only these, against version 0.1
    python -m benchmarks.same 7ac8796 --cache FILE.json   keeps the digests of the other commit

Each run trains a preset twice on this machine from seed 11, once by each commit, in a process of
its own, and the digests of the parameters at its end are compared. A digest is no digest of another
processor.

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


def main(words: list[str]) -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", type=commit_of, help="the other commit")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"some of {', '.join(RUNS)}")
    parser.add_argument("--cache", type=Path, help="file with the digests of other commits")
    given = parser.parse_intermixed_args(words)
    if unknown := set(given.runs) - set(RUNS):
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    commit = given.commit
    cache: dict[str, dict[str, str]] = {}
    if given.cache and given.cache.exists():
        cache = json.loads(given.cache.read_text(encoding="utf-8"))
    known = cache.setdefault(commit, {})
    same = True
    with ExitStack() as stack:
        other = None
        for name in given.runs or RUNS:
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


def commit_of(name: str) -> str:
    """Return the whole hash of a commit that the command line names."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        raise argparse.ArgumentTypeError(f"{name!r} is no commit of this clone; see git log")
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
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [*start_of(tree), "train", *RUNS[name].split(), "--seed", str(SEED)]
        words += ["--deterministic", "--no-finish", "--out", str(run)]
        subprocess.run(words, env=environment_of(tree), stdout=subprocess.DEVNULL, check=True)
        tensors = load_file(sorted((run / "checkpoints").glob("*.safetensors"))[-1])
    digest = hashlib.sha256()
    for key in sorted(tensors):
        if key.startswith("parameter/"):
            digest.update(tensors[key].tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
