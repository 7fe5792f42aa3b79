"""What is kept of a measurement's runs: an archive, metrics thinned to what figures need."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from gelada.core.files import parse_lines

Line = dict[str, Any]

LINES = 200
"""Lines that are kept of a run's metrics: evenly spaced, with the first and the last."""

DIGITS = 4
"""Significant digits of those metrics that no figure is made of."""

EXACT = ("steps", "seconds", "score", "best", "version", "games")
"""Metrics that figures are made of."""


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


def metrics_in(archive: Path, prefix: str = "") -> list[Line]:
    """Return the kept lines of a run's metrics, oldest first."""
    return parse_lines(unpacked(archive, f"{prefix}metrics.jsonl"))


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
