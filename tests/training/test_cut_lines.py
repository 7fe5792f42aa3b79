"""Lines that a resumed deterministic run writes again are deleted first, from whatever is there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gelada.core.errors import GeladaError
from gelada.training.exact import cut_lines


def write(path: Path, *rows: object) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_only_what_came_before_stays(tmp_path: Path) -> None:
    cut_lines(tmp_path, 20, 2000)  # no file yet
    metrics = [{"version": version, "steps": 100 * version} for version in (10, 20, 23, 30)]
    write(tmp_path / "metrics.jsonl", *metrics, {"version": "x"}, {}, {"version": None})
    games = [{"steps": steps, "score": 1.0} for steps in (1900, 2000, 2000, 2100)]
    write(tmp_path / "episodes.jsonl", *games)
    cut_lines(tmp_path, 20, 2000)
    kept = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert kept == metrics[:2]
    kept = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert kept == games[:3]


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


@pytest.mark.parametrize("file", ["metrics.jsonl", "episodes.jsonl"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "not a regular file|Is a directory"),
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (huge, "longer than [0-9,]+ bytes"),
    ],
    ids=["folder", "pipe", "device", "huge"],
)
def test_a_file_that_means_no_good_is_named(
    file: str, make: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    make(tmp_path / file)
    with pytest.raises(GeladaError, match=rf"{file} cannot be read: .*({why})"):
        cut_lines(tmp_path, 20, 2000)
