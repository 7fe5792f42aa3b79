"""The ledger of measurements: what was started, what came of it, and how a report finds it.

A *cell* is (what, hash of the settings, seed). Each line of ``results/ledger.jsonl`` is one event
of one cell: ``started``, then ``finished`` with its result or ``failed`` with its error. Lines are
only ever appended, so every run that was started stays on record. What is kept of a cell's runs is
an archive, with metrics thinned to what figures need.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colobus.core.files import parse_lines

Line = dict[str, Any]

RESULTS = Path(__file__).resolve().parent.parent / "results"
LEDGER = RESULTS / "ledger.jsonl"

NAME = "gelada"
"""What the command is called in the files of results. It stays so, whatever it is called today."""

MEAN_300 = "mean 300"
"""Variant of ``breakout-time``."""

VARIANTS = {"b98cb039425b": "mean 15"}
"""Of settings whose lines do not tell it themselves."""


LINES = 200
"""Lines that are kept of a run's metrics: evenly spaced, with the first and the last."""

DIGITS = 4
"""Significant digits of those metrics that no figure is made of."""

EXACT = ("steps", "seconds", "score", "best", "version", "games")
"""Metrics that figures are made of."""


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    what: str
    seed: int
    settings: dict[str, Any]  # everything the result may depend on, but for seed and code
    measure: Callable[[Cell, Path, Path], dict[str, Any]]  # (cell, empty folder, log folder)
    preset: str = ""  # its settings are in `settings`

    @property
    def asked(self) -> dict[str, Any]:
        """Return how it is measured."""
        asked: dict[str, Any] = self.settings["procedure"]
        return asked

    @property
    def hash(self) -> str:
        """Return the hash of the settings."""
        return settings_hash(self.settings)

    @property
    def name(self) -> str:
        """Return what, hash and seed as one word."""
        return f"{self.what}-{self.hash}-{self.seed}"

    def matches(self, line: Line) -> bool:
        """Say whether a line of the ledger is about this cell."""
        mine = (self.what, self.hash, self.seed)
        return (line["what"], line["settings"], line["seed"]) == mine


class Ledger:
    """The file: one JSON object a line, appended and never changed."""

    def __init__(self, path: Path = LEDGER) -> None:
        self._path = path

    def lines(self) -> list[Line]:
        """Return all lines, oldest first."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def of(self, cell: Cell) -> list[Line]:
        """Return the lines about a cell, oldest first."""
        return [line for line in self.lines() if cell.matches(line)]

    def append(self, line: Line) -> None:
        """Add a line in one write, so that two measuring processes do not mix theirs."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def settings_hash(settings: dict[str, Any]) -> str:
    """Return 12 hexadecimal digits that name the settings, whatever the order of their keys."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def archive_of(line: Line) -> Path:
    """Return the archive with the logs of a line."""
    return RESULTS / f"{line['log']}.tar.xz"


def metrics_of(line: Line) -> list[Line]:
    """Return the metrics that are kept of a line's run, oldest first."""
    return parse_lines(unpacked(archive_of(line), "metrics.jsonl"))


def pack(folder: Path, archive: Path) -> None:
    """Write the files of a folder into an archive (.tar.xz), metrics thinned.

    The same files give the same bytes. Like files stand beside each other, which compresses best.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files, key=lambda path: "".join(path.suffixes)):
            data = path.read_bytes()
            if path.name.endswith("metrics.jsonl"):
                data = thinned(data)
            about = tarfile.TarInfo(str(path.relative_to(folder)))
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    archive.write_bytes(lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpacked(archive: Path, name: str) -> str:
    """Return the text of a file in an archive."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read().decode()


def thinned(data: bytes) -> bytes:
    """Return at most about `LINES` of the lines of a metrics file, the first and the last in it."""
    lines = parse_lines(data.decode())
    step = -(-len(lines) // LINES) or 1
    kept = lines[::-1][::step][::-1]
    if lines and kept[0] is not lines[0]:
        kept.insert(0, lines[0])
    short = ({name: shortened(name, value) for name, value in line.items()} for line in kept)
    return "".join(json.dumps(line) + "\n" for line in short).encode()


def shortened(name: str, value: Any) -> Any:
    """Return a metric with no more digits than are kept of it."""
    if not isinstance(value, float):
        return value
    return round(value, DIGITS) if name in EXACT else float(f"{value:.{DIGITS}g}")


def finished(lines: Iterable[Line]) -> Line | None:
    """Return the first finished line of a cell, or None: a result is never measured away."""
    return next((line for line in lines if line["event"] == "finished"), None)


def state(lines: Sequence[Line]) -> str:
    """Return what has become of a cell in words."""
    started = sum(line["event"] == "started" for line in lines)
    failed = sum(line["event"] == "failed" for line in lines)
    done = finished(lines)
    lost = started - failed - (done is not None)
    parts = ["finished" if done else "missing"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{lost} started without an end"] if lost else []
    return ", ".join(parts)


def missing(cells: Sequence[Cell], lines: Sequence[Line]) -> list[Cell]:
    """Return the cells that have no finished line, in their order."""
    return [cell for cell in cells if not finished([line for line in lines if cell.matches(line)])]


@dataclass(frozen=True)
class Found:
    """What the ledger has about one thing that was measured with one seed."""

    line: Line  # the first finished one of the newest settings
    earlier: tuple[Line, ...] = ()  # the first finished ones of older settings, oldest first
    failed: tuple[Line, ...] = ()  # of the newest settings
    trained: Line | None = None  # of a ``-time`` or ``-score`` cell: the run that it evaluated


def variant(line: Line) -> str:
    """Return which of several measurements of one name a finished line is about, or ""."""
    result, what = line["result"], line["what"]
    if line["settings"] in VARIANTS:
        return VARIANTS[line["settings"]]
    if what.endswith("-time"):
        mean = result.get("threshold", 18.0)
        return "" if mean == 18.0 else f"mean {mean:g}"
    if what.endswith("-games"):
        return str(result["game"])
    if what in ("ray-limit", "act-with"):
        return str(result["preset"])
    if what == "ray-host":
        return str(result["hit"]["how"])
    if what == "ray-failure":
        hit = re.search(r"(kill|stop)=(\w+):", result["command"])
        return f"{hit[2]} {hit[1]}" if hit else ""
    if what == "dba3c-delay":
        delay = re.search(r"delay=(\d+)", result["command"])
        return delay[1] if delay else "0"
    return ""


class Results:
    """The finished measurements of a ledger, by what was measured, variant and seed.

    Settings have been renamed since the first measurements, which changes the hash, so a report
    does not look for the hash of today. It takes the first finished line of the newest settings,
    and knows the older ones.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        """Sort the lines. Order in time is that of the field ``time``."""
        ordered = sorted(lines, key=lambda line: line["time"])
        variants = {
            (line["what"], line["settings"]): variant(line)
            for line in ordered
            if line["event"] == "finished"
        }
        self._found: dict[tuple[str, str, int], dict[str, list[Line]]] = {}
        for line in ordered:
            name = variants.get((line["what"], line["settings"]))
            if line["event"] in ("finished", "failed") and name is not None:
                key = (line["what"], name, line["seed"])
                by_settings = self._found.setdefault(key, {})
                by_settings.setdefault(line["settings"], []).append(line)

    def seeds(self, what: str, variant: str = "") -> list[Found]:
        """Return what was found with each seed, in the order of the seeds."""
        keys = sorted(key for key in self._found if key[:2] == (what, variant))
        found = [self._of(self._found[key]) for key in keys]
        return [one for one in found if one is not None]

    def one(self, what: str, variant: str = "") -> Found | None:
        """Return what was found with the first seed, or None."""
        return next(iter(self.seeds(what, variant)), None)

    def _of(self, by_settings: dict[str, list[Line]]) -> Found | None:
        """Return the newest settings' first finished line; "newest" is when that was measured."""
        first = [finished(lines) for lines in by_settings.values()]
        done = sorted((line for line in first if line), key=lambda line: line["time"])
        if not done:
            return None
        newest = done[-1]
        lines = by_settings[newest["settings"]]
        failed = tuple(line for line in lines if line["event"] == "failed")
        return Found(newest, tuple(done[:-1]), failed, self._trained(newest))

    def _trained(self, line: Line) -> Line | None:
        """Return the run whose checkpoints a line without a command is about."""
        what, cut, kind = line["what"].rpartition("-")
        if kind not in ("time", "score") or "command" in line["result"]:
            return None
        runs = self._found.get((f"{what}{cut}train", "", line["seed"]), {})
        before = [
            run
            for lines in runs.values()
            for run in lines
            if run["event"] == "finished" and run["time"] <= line["time"]
        ]
        return max(before, key=lambda run: run["time"], default=None)
