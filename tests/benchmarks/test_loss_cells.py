"""Figures about losses, from metrics and events that are made up."""

from __future__ import annotations

import os
from typing import Any

import psutil
import pytest

import sections_losses
from lookup import Results
from losses import detections, missed, other_work, score_at


def test_each_frozen_process_is_timed_by_its_own_loss() -> None:
    events: list[dict[str, Any]] = [
        {"seconds": 10.0, "event": "hit", "process": 7},
        {"seconds": 12.0, "event": "lost", "process": 8},
        {"seconds": 14.25, "event": "lost", "process": 7},
        {"seconds": 20.0, "event": "hit", "process": 9},
        {"seconds": 24.5, "event": "lost", "process": 9},
        {"seconds": 30.0, "event": "hit", "process": 10},  # the run ended before
    ]
    assert detections(events) == [4.25, 4.5]
    assert [missed(events, end) for end in (31.0, 44.0, 46.0)] == [0, 0, 1]


def test_steps_that_were_played_again_count_as_played() -> None:
    metrics: list[dict[str, Any]] = [
        {"seconds": 1.0, "steps": 100, "score": None},
        {"seconds": 2.0, "steps": 200, "score": 2.0},
        {"seconds": 3.0, "steps": 300, "score": 3.0},
        {"seconds": 5.0, "steps": 240, "score": 2.5},  # 60 steps were lost
        {"seconds": 6.0, "steps": 340, "score": 4.0},
    ]
    restored: list[dict[str, Any]] = [{"seconds": 4.0, "event": "restored", "lost_steps": 60}]
    assert score_at(metrics, [], 300) == 2.5
    assert score_at(metrics, restored, 300) == 2.5
    assert score_at(metrics[:3], [], 300) == 3.0
    assert score_at(metrics, restored, 399) == 2.5
    assert score_at(metrics, restored, 400) == 4.0
    with pytest.raises(LookupError, match="no score within 150 steps"):
        score_at(metrics, [], 150)


def test_other_work_ends() -> None:
    before = set(psutil.Process(os.getpid()).children())
    with other_work(2, niceness=1):
        busy = set(psutil.Process(os.getpid()).children()) - before
        assert len(busy) == 2
    assert not any(process.is_running() for process in busy)


def measured(what: str, seed: int, **result: Any) -> dict[str, Any]:
    about = {"event": "finished", "time": f"2026-01-0{seed}", "what": what, "settings": "a"}
    return about | {"seed": seed, "machine": {}, "result": {"command": "x"} | result}


def test_sections_are_there_once_something_was_measured() -> None:
    assert sections_losses.sections(Results([])) == []
    lines = [
        measured("exact-resume", 1, who="appo", stops=20, equal=True, different=[]),
        measured("exact-resume-ray", 2, who="a3c", stops=6, equal=False, different=["metrics"]),
        measured("ray-killed-score", 1, score=18.0, score_with_kills=17.5, share=0.987, hits=9,
                 restored=4, lost_steps=5120),
    ]  # fmt: skip
    exactly, killed = sections_losses.sections(Results(lines))
    assert [row.cells for row in exactly.rows] == [
        ("APPO, on threads", "20", "yes"),
        ("A3C, 2 workers, on Ray", "6", "no: metrics"),
    ]
    assert [row.cells for row in killed.rows] == [
        ("1", "18.0", "17.5", "0.99", "5,120", "9", "4")
    ]  # fmt: skip
