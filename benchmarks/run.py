"""Measures what the ledger does not have yet.

    python -m benchmarks.run                      measure all missing cells, one after the other
    python -m benchmarks.run --only pong-time     only these
    python -m benchmarks.run --only dba3c         only those that begin so
    python -m benchmarks.run --only gpu-speed     what needs a GPU is measured only if it is named
    python -m benchmarks.run --most 2             only the first two that are missing
    python -m benchmarks.run --list               say what is there and what is missing

`python -m benchmarks.render` writes the pages from what was measured.

Let nothing else run on the machine meanwhile. Ctrl-C stops; the next start goes on with what is
missing. How to read the ledger: benchmarks/results/README.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cells import all_cells
from benchmarks.lib.ledger import (
    LEDGER,
    Cell,
    Ledger,
    Line,
    archive_of,
    finished,
    missing,
    pack,
    state,
)
from colobus.runtime.system import describe_machine

ROOT = Path(__file__).resolve().parent.parent

CODE = ("src", "benchmarks/*.py", "benchmarks/lib/*.py", "pyproject.toml", "constraints.txt")
"""What must be unchanged since the commit for a result to belong to it."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a cell failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({name for cell in all_cells() for name in (cell.what, first_word(cell))})
    parser.add_argument("--only", choices=names, help="measure these only, or all that begin so")
    parser.add_argument("--list", action="store_true", help="say what is there, measure nothing")
    parser.add_argument("--seeds", type=int, nargs="+", help="measure these only")
    parser.add_argument("--most", type=int, help="end after this many cells")
    flags = parser.parse_args(args)
    ledger = Ledger(LEDGER)
    cells = [
        cell
        for cell in all_cells()
        if asked_for(cell, flags.only) and (not flags.seeds or cell.seed in flags.seeds)
    ]
    if flags.list:
        for cell in cells:
            print(f"{cell.name:<40}{state(ledger.of(cell))}")
        return 0
    todo = missing(cells, ledger.lines())
    print(f"{len(cells)} cells, {len(todo)} missing", flush=True)
    todo = todo[: flags.most]
    results = [measure(cell, ledger, number, len(todo)) for number, cell in enumerate(todo, 1)]
    return 0 if all(results) else 1


def first_word(cell: Cell) -> str:
    """Return what all measurements of a kind begin with, such as "dba3c"."""
    return cell.what.partition("-")[0]


def asked_for(cell: Cell, only: str | None) -> bool:
    """Say whether a cell is named; without a name all are, but for those that need a GPU."""
    return only in (cell.what, first_word(cell)) if only else first_word(cell) != "gpu"


def measure(cell: Cell, ledger: Ledger, number: int, count: int) -> bool:
    """Measure one cell and write down how it went; say whether it was finished."""
    attempt = 1 + sum(line["event"] == "started" for line in ledger.of(cell))
    about: Line = {"what": cell.what, "settings": cell.hash, "seed": cell.seed}
    about |= {"attempt": attempt, "log": f"logs/{cell.name}-{attempt}"}
    print(f"[{number}/{count}] {cell.name}, attempt {attempt}", flush=True)
    here, began = surroundings(), time.monotonic()
    ledger.append({"event": "started", "time": now(), **about, **here})

    def ended(event: str, **more: Any) -> Line:
        line = {"event": event, "time": now(), **about, **surroundings()}
        first, last = (one["machine"]["commit"] for one in (here, line))
        line["machine"]["commit"] = first if first == last else f"{first.rstrip('+')}+"  # changed
        line |= {"seconds": round(time.monotonic() - began, 1), **more}
        ledger.append(line)
        return line

    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as log:
        try:
            result = cell.measure(cell, Path(scratch), Path(log))
        except KeyboardInterrupt:
            ended("failed", error="stopped by hand")
            raise SystemExit(130) from None
        except Exception as error:  # whatever it is, it goes on record
            line = ended("failed", error=f"{type(error).__name__}: {error}")
            print(f"  failed: {line['error']}", file=sys.stderr, flush=True)
            return False
        finally:
            archive = archive_of(about)
            archive.parent.mkdir(parents=True, exist_ok=True)
            pack(Path(log), archive)
    ended("finished", result=result)
    assert finished(ledger.of(cell))
    return True


def surroundings() -> dict[str, Any]:
    """Return machine, versions, commit, and how busy the machine was in the last minute."""
    machine = describe_machine() | {"commit": commit()}
    return {"load": round(os.getloadavg()[0], 2), "machine": machine}


def commit() -> str:
    """Return the commit, with + if code differs from it (the ledger itself always does)."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--", *CODE) else "")


def now() -> str:
    """Return the time of day, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what was started ends with it
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
