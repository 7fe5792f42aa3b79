"""Installs each peer into an environment of its own, once.

`NAME.txt` beside this file has the exact versions of everything in it. torch is the one that the
project itself is tested with (constraints.txt).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".peers"

LONGEST = 3600.0
"""Seconds that an installation may take."""


class Failed(Exception):
    """A peer cannot be measured: at which stage, and the last line that was said."""

    def __init__(self, stage: str, line: str) -> None:
        super().__init__(f"{stage}: {line}")
        self.stage, self.line = stage, line


def last_line(text: str) -> str:
    """Return the last line that is not empty, cut to a length for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def install(venv: str, cache: Path = CACHE) -> str:
    """Return the Python of a peer's environment, which is made if it is not there yet.

    Raises:
        Failed: if it cannot be made; what there is of it is removed.
    """
    wanted = (HERE / f"{venv}.txt").read_text(encoding="utf-8")
    folder = cache / venv
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    constraints = cache / "constraints.txt"
    constraints.write_text(torch_pin() + "\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    try:
        run([sys.executable, "-m", "venv", str(folder)])
        run([*pip, "-c", str(constraints), "-r", str(HERE / f"{venv}.txt")])
        if venv == "sample-factory":
            copy_roms(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    done.write_text(wanted, encoding="utf-8")
    return str(python)


def torch_pin() -> str:
    """Return the line of constraints.txt about torch."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def copy_roms(folder: Path) -> None:
    """Copy the games of our own ale-py into an environment whose older ale-py comes without.

    Raises:
        Failed: if either has no folder for them.
    """
    import ale_py

    games = sorted((Path(ale_py.__file__).parent / "roms").glob("*.bin"))
    targets = list(folder.glob("lib/python*/site-packages/ale_py/roms"))
    if not games or not targets:
        raise Failed("install", f"{len(games)} games to copy into {len(targets)} folders")
    for game in games:
        shutil.copy(game, targets[0])


def run(command: Sequence[str]) -> None:
    """Run a command of an installation.

    Raises:
        Failed: if it fails or takes longer than `LONGEST`.
    """
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if "ERROR" in line.upper()]
        raise Failed("install", last_line("\n".join(said) or error.stderr)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed("install", str(error)) from None
