"""By which rule a run will end, and when."""

from __future__ import annotations

import pytest

from gelada.cli.panel import endings, progress, time_left, trend
from gelada.core.timing import clock
from gelada.roles.tracker import Status, StopRule

RISING = [(100 * s, float(s), -20.0 + 0.1 * s) for s in range(201)]
"""A score that rises by 0.1 a second, from -20 to 0 in 200 seconds."""

FLAT = [(100 * s, float(s), -20.0) for s in range(201)]


def at(curve: list[tuple[int, float, float]]) -> Status:
    steps, seconds, score = curve[-1]
    return Status(steps=steps, seconds=seconds, score=score, curve=curve)


@pytest.mark.parametrize(
    ("status", "stop", "done", "left"),
    [
        (Status(steps=250, seconds=60), StopRule(steps=1000), "25 % of 1,000 steps", "0:07 left"),
        (Status(steps=250, seconds=60), StopRule(minutes=2), "50 % of 2 minutes", "1:00 left"),
        (Status(seconds=30), StopRule(minutes=1), "50 % of 1 minute", "0:30 left"),
        (  # the sooner of two certain ones
            Status(steps=250, seconds=60),
            StopRule(steps=1000, minutes=2),
            "25 % of 1,000 steps",
            "0:07 left",
        ),
        (  # a score that rises comes sooner than the steps
            at(RISING),
            StopRule(steps=100_000, until_score=10.05),
            "67 % of the way to a score of 10.05",
            "about 1:40 left, at most 13:20",
        ),
        (  # or later
            at(RISING),
            StopRule(steps=25_000, until_score=10.0),
            "80 % of 25,000 steps",
            "at most 0:50 left",
        ),
        (  # one that does not rise is not waited for
            at(FLAT),
            StopRule(steps=100_000, until_score=10.0),
            "20 % of 100,000 steps",
            "at most 13:20 left",
        ),
        (at(FLAT), StopRule(until_score=10.0), "0 % of the way to a score of 10", ""),
        (
            Status(steps=5, score=1.0),
            StopRule(until_score=10.0),
            "0 % of the way to a score of 10",
            "",
        ),
        (Status(steps=2000), StopRule(steps=1000), "100 % of 1,000 steps", "0:00 left"),
        (Status(steps=2000), StopRule(), "", ""),
    ],
)
def test_the_rule_that_comes_first(status: Status, stop: StopRule, done: str, left: str) -> None:
    found = endings(status, stop, rate=100.0)
    assert progress(found) == done
    assert time_left(found) == left


def test_evaluations_have_a_trend_of_their_own() -> None:
    stop = StopRule(steps=100_000, until_evaluated=20.05)
    status = Status(steps=20_000, seconds=200.0, evaluated=10.0)
    one = endings(status, stop, 100.0, [(200.0, 10.0)])
    assert progress(one) == "20 % of 100,000 steps"
    assert time_left(one) == "at most 13:20 left"
    two = endings(status, stop, 100.0, [(150.0, 5.0), (200.0, 10.0)])
    assert progress(two) == "33 % of the way to an evaluated score of 20.05"
    assert time_left(two) == "about 1:40 left, at most 13:20"


def test_the_trend_is_that_of_late() -> None:
    points = [(float(s), max(0.0, s - 60.0)) for s in range(91)]  # flat for a minute
    assert trend(points) == pytest.approx(1.0)
    assert trend(points[:50]) == 0.0
    assert trend(points[:1]) == 0.0
    assert trend([(5.0, 1.0), (5.0, 2.0)]) == 0.0


def test_nothing_is_said_of_a_run_that_stands_still() -> None:
    found = endings(Status(steps=250), StopRule(steps=1000, until_score=5.0), rate=0.0)
    assert (progress(found), time_left(found)) == ("25 % of 1,000 steps", "")


def test_a_score_that_is_far_away_is_not_in_sight() -> None:
    slowly = [(100 * s, float(s), 0.00001 * s) for s in range(201)]
    found = endings(at(slowly), StopRule(until_score=10.0), 100.0)
    assert time_left(found) == ""


def test_times_as_text() -> None:
    assert [clock(s) for s in (0, 65.9, 3600, 7384)] == ["0:00", "1:05", "1:00:00", "2:03:04"]
