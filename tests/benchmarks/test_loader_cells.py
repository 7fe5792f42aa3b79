"""Runs with and without a loader, and with one and two learners; they are made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import loaders
import replicas
import sections_devices
from gelada.cli.experiment_flags import resolve
from gelada.cli.train import Train
from lookup import Results


def made_up(folder: Path, rate: float, wait: float) -> None:
    """Write the metrics of a run: a line each five seconds."""
    folder.mkdir()
    with (folder / "metrics.jsonl").open("w") as file:
        for second in range(0, 35, 5):
            share = 0.9 if second < loaders.SETTLED else wait  # the beginning does not count
            line = {"seconds": float(second), "steps": int(rate * second), loaders.WAIT: share}
            file.write(json.dumps(line) + "\n")


def test_runs_take_turns_and_each_pair_has_its_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def trained(words: list[str], run: Path, log: Path, prefix: str) -> None:
        given.append("with" if "--loaders" in words else "without")
        turn = len(given) // 2
        with_one = given[-1] == "with"
        made_up(run, 1000.0 + 100.0 * turn * with_one, 0.01 if with_one else 0.05)

    monkeypatch.setattr(loaders, "train", trained)
    cell = loaders.all_cells()[0]
    result = cell.measure(cell, tmp_path, tmp_path)
    assert given == ["without", "with"] * loaders.TURNS
    assert result["ratios"] == [1.1, 1.2, 1.3, 1.4, 1.5]
    assert result["median_ratio"] == 1.3
    assert set(result["learner_waits"]["with"]) == {0.01}
    assert set(result["learner_waits"]["without"]) == {0.05}
    assert result["command"].endswith("--loaders 1")


def test_the_section_is_there_once_something_was_measured() -> None:
    assert sections_devices.sections(Results([])) == []
    line: dict[str, Any] = {
        **{"event": "finished", "time": "2026-01-01", "what": "loaders-games", "settings": "a"},
        **{"seed": 1, "machine": {}},
        "result": {
            "command": "x",
            "game": "breakout",
            "steps_per_s": {"without": [1000.0, 1100.0], "with": [1010.0, 1100.0]},
            "learner_waits": {"without": [0.1, 0.2], "with": [0.05, 0.05]},
            "ratios": [1.01, 1.0],
        },
    }
    (section,) = sections_devices.sections(Results([line]))
    (row,) = section.rows
    assert row.cells == (
        "breakout",
        "**1,050** (1,000, 1,100)",
        "**1,055** (1,010, 1,100)",
        "**1.005** (1.010, 1.000)",
        "**0.150** (0.100, 0.200)",
        "**0.050** (0.050, 0.050)",
    )


def test_two_learners_are_compared_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    def trained(words: list[str], run: Path, log: Path, prefix: str) -> None:
        given.append(words)
        run.mkdir()
        late = 100 * len(given)
        lines = [
            {"seconds": 20.0 + n, "steps": late * n, "score": 9.0 * n or None} for n in range(5)
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(replicas, "train", trained)
    cell = replicas.all_cells()[0]
    result = cell.measure(cell, tmp_path, tmp_path)
    assert ["--learners" in words for words in given] == [False, True]
    shape = resolve(Train, "train", given[1][1:]).experiment.shape
    one = resolve(Train, "train", given[0][1:]).experiment.shape
    assert (shape.players, 2 * shape.datapoints) == (one.players, one.datapoints)
    assert result["steps_to_solved"] == {"1 learner": 200, "2 learners": 400}
    assert result["ratio"] == 2.0
    line: dict[str, Any] = {
        **{"event": "finished", "time": "2026-01-01", "what": "replicas", "settings": "a"},
        **{"seed": 1, "machine": {}, "result": result},
    }
    (section,) = sections_devices.sections(Results([line]))
    assert [row.cells[:2] for row in section.rows] == [
        ("1 learner", "200"),
        ("2 learners", "400"),
        ("ratio", "2.00"),
    ]


def test_deterministic_runs_of_both_kinds_are_compared_at_three_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(words: list[str], run: Path, log: Path, prefix: str) -> None:
        assert "--deterministic" in words
        run.mkdir()
        late = 200 if "--learners" in words else 100
        lines = [{"steps": late * n, "score": 5.0 * n or None} for n in range(4)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(replicas, "train", trained)
    cell = replicas.all_cells()[-1]
    result = cell.measure(cell, tmp_path, tmp_path)
    assert result["steps_to"] == {
        "1 learner": {"0": 100, "10": 200, "18": None},
        "2 learners": {"0": 200, "10": 400, "18": None},
    }
    line: dict[str, Any] = {
        **{"event": "finished", "time": "2026-01-01", "what": "replicas-steps", "settings": "a"},
        **{"seed": 1, "machine": {}, "result": result},
    }
    (section,) = sections_devices.sections(Results([line]))
    assert [row.cells for row in section.rows] == [
        ("steps to 0", "100", "200", "2.00"),
        ("steps to 10", "200", "400", "2.00"),
        ("steps to 18", "never", "never", "none"),
    ]
