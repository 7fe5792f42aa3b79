"""Whole files, and lines of JSON that a killed process may have cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gelada.core.files import read_lines, whole_file, write_whole
from gelada.runs.curves import read_metrics


def test_a_file_is_complete_or_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"first")

    def fail() -> None:
        with whole_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"first"
    with whole_file(path) as temporary:
        temporary.write_bytes(b"second")
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"steps": 1}\n[]\n{"st\xff\n{"steps": 2}\n{"steps": 3')
    assert read_lines(path) == [{"steps": 1}, {"steps": 2}]


def test_metrics_leave_out_what_a_resumed_run_lost(tmp_path: Path) -> None:
    steps = (100, 200, 300, 250, 350)
    lines = [f'{{"steps": {step}, "seconds": 1, "score": null}}\n' for step in steps]
    (tmp_path / "metrics.jsonl").write_text("".join([*lines, '{"score": 1.0}\n']))
    assert [row["steps"] for row in read_metrics(tmp_path)] == [100, 200, 250, 350]


def test_two_that_write_the_same_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with whole_file(path) as slow:
        slow.write_bytes(b"slow")
        with whole_file(path) as quick:
            quick.write_bytes(b"quick")
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_whole(tmp_path / "report.html", b"x")
    assert error.value.filename == str(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
