"""Waiting and looking, in a process that may be stopped for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gelada.core import timing
from gelada.core.timing import PIECE_SECONDS, Gaps, wait_for


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


def test_gaps_between_looks_are_known_by_when_they_began(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    gaps = Gaps()
    for passed in (1.0, 0.5, 200.0, 1.0, 30.0, 4.9):
        now[0] += passed
        gaps.look()
    assert gaps.since(0.0) == 230.0
    assert gaps.since(1.5) == 230.0
    assert gaps.since(1.6) == 30.0  # a stage that began in a gap began after it
    assert gaps.since(203.0) == 0.0
    assert timing.PIECE_SECONDS < 120  # the usual deadline
