"""Waiting and looking, in a process that may be stopped for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gelada.core import timing
from gelada.core.timing import PIECE_SECONDS, Gaps, Patience, wait_for


class Waits(threading.Condition):
    """A condition on which every wait ends at once, and is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        self.waited.append(timeout)
        return predicate()


@pytest.mark.parametrize(
    ("patience", "pieces"), [(0.0, [0.0]), (3.0, [3.0]), (12.0, [5.0, 5.0, 2.0])]
)
def test_a_patience_is_used_up_piece_by_piece(patience: float, pieces: list[float]) -> None:
    """So one pause, however long, costs at most the piece in which it came."""
    changed = Waits()
    assert not wait_for(changed, lambda: False, patience)
    assert changed.waited == pieces


def test_a_wait_ends_when_it_holds() -> None:
    changed = Waits()
    answers = [False, False, True]
    assert wait_for(changed, lambda: answers.pop(0), 1e300)
    assert changed.waited == [PIECE_SECONDS] * 3


def test_gaps_between_looks_count_from_the_moment_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    gaps = Gaps()
    for passed in (1.0, 0.5, 200.0, 1.0, 30.0, 4.9):
        now[0] += passed
        gaps.look()
    assert gaps.since(0.0) == 230.0
    assert gaps.since(1.5) == 230.0
    assert gaps.since(1.6) == pytest.approx(229.9)  # a stage that began just before the pause
    assert gaps.since(201.4) == pytest.approx(30.1)  # or just after it, before the next look
    assert gaps.since(203.0) == 29.5
    assert gaps.since(233.0) == 0.0
    assert timing.PIECE_SECONDS < 120  # the usual deadline


def test_one_who_waits_in_pieces_loses_a_piece_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    patience = Patience(10.0)
    left = []
    for passed in (0.0, 1.0, 3600.0, 3.0, 2.0):
        now[0] += passed
        left.append(patience.left())
    assert left == [10.0, 9.0, 9.0 - PIECE_SECONDS, 1.0, 0.0]
    assert Patience(0.0).left() == 0.0
