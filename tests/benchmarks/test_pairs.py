"""Pairs of runs of two commits: each is as often the first."""

from __future__ import annotations

from pathlib import Path

from benchmarks import pairs


def test_the_order_changes_from_pair_to_pair_and_the_result_does_not() -> None:
    asked: list[str] = []

    def measure(tree: Path) -> str:
        asked.append(tree.name)
        return f"{tree.name}{len(asked)}"

    found = pairs.in_turn(measure, (Path("other"), Path("today")), 3)
    assert asked == ["other", "today", "today", "other", "other", "today"]
    assert found == [["other1", "today2"], ["other4", "today3"], ["other5", "today6"]]


def test_a_ratio_above_one_says_that_today_is_better() -> None:
    assert pairs.ratios([[2.0, 3.0]]) == [1.5]  # steps per second
    assert pairs.ratios([[2.0, 1.0]], -1) == [2.0]  # seconds
