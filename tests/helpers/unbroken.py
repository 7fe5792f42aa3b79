"""Comparing a run that was broken off and resumed with the run without the break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from colobus.core.checkpoint import Checkpoint, newest_checkpoint


def finished(folder: Path) -> tuple[Checkpoint, list[dict[str, Any]]]:
    """Return the last checkpoint and the metrics of a run, without what depends on the time.

    The line that only the end of a run makes is left out.
    """
    _, checkpoint, passed_over = newest_checkpoint(folder / "checkpoints")
    assert passed_over == []
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in (*lines, checkpoint.counters):
        del line["seconds"]
    for name in ("peak", "marks", "evaluated"):  # of checkpoints, which are written at times
        del checkpoint.counters[name]
    return checkpoint, [line for line in lines if line["version"] % 10 == 0]


def episodes_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of all games that were learned from, without what depends on the time."""
    text = (folder / "episodes.jsonl").read_text()
    return [{**json.loads(line), "seconds": 0.0} for line in text.splitlines()]


def assert_same_run(one: Path, other: Path) -> None:
    """Parameters, optimizer, actors with their games, scores and all lines: bit for bit."""
    (mine, my_lines), (theirs, their_lines) = finished(one), finished(other)
    assert mine.version.number == theirs.version.number
    assert mine.steps == theirs.steps
    assert mine.counters == theirs.counters
    assert mine.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        assert torch.equal(mine.tensors[name], tensor), name
    assert my_lines == their_lines
    assert episodes_of(one) == episodes_of(other)
    for path in sorted((other / "stores").rglob("*.safetensors"))[-1:]:
        assert path.read_bytes() == (one / path.relative_to(other)).read_bytes(), path
