"""Pairs of runs of two commits: each is as often the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import pairs, same


@pytest.mark.parametrize("main", [same.main, pairs.main])
def test_what_is_no_commit_is_a_line(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 of `same` says that a digest differs."""
    with pytest.raises(SystemExit) as end:
        main(["no-commit"])
    assert end.value.code == 2
    said = "error: argument commit: 'no-commit' is no commit of this clone"
    assert said in capsys.readouterr().err


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
