"""Actions of all kinds as numbers, and masks of them; all numbers by hand."""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np
import pytest
from gymnasium import spaces

from colobus.core.errors import ColobusError
from colobus.core.fields import Range
from colobus.envs.actions import MOST_SINGLE, actions_of
from colobus.runs.config import Rest


@pytest.mark.parametrize(
    ("space", "table", "names"),
    [
        (spaces.Discrete(2, start=3), [3, 4], ("3", "4")),
        (spaces.MultiDiscrete([1, 2]), [[0, 0], [0, 1]], ("0,0", "0,1")),
        (spaces.Box(0, 3, (1,), np.int64), [[0], [1], [2], [3]], ("0", "1", "2", "3")),
        (spaces.MultiDiscrete([2, 1], start=[5, -1]), [[5, -1], [6, -1]], ("5,-1", "6,-1")),
        (spaces.MultiDiscrete(np.array([[2], [1]])), [[[0], [0]], [[1], [0]]], ("0,0", "1,0")),
        (spaces.MultiBinary(1), [[0], [1]], ("0", "1")),
    ],
)  # fmt: skip
def test_each_combination_is_an_action(space: Any, table: Any, names: Any) -> None:
    actions = actions_of("mine", space)
    assert (actions.table.tolist(), actions.names) == (table, names)
    assert all(space.contains(each) for each in actions.table)


@pytest.mark.parametrize(("numbers", "values"), [(1, 15), (2, 15), (3, 5), (4, 3), (5, 3)])
def test_a_box_is_cut_into_evenly_spaced_values(numbers: int, values: int) -> None:
    """At most 256 combinations of an odd number of values, so that the middle is one."""
    space = spaces.Box(-2.0, 2.0, (numbers,))
    actions = actions_of("mine", space)
    assert actions.table.shape == (values**numbers, numbers)
    assert np.unique(actions.table[:, 0]) == pytest.approx(np.linspace(-2, 2, values))
    assert actions.table[len(actions.table) // 2].tolist() == [0.0] * numbers
    assert all(space.contains(each) for each in actions.table)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.MultiDiscrete([17, 16]), "have 272 combinations, and at most 256 combinations are"),
        (spaces.MultiDiscrete([5] * 10), "have 9,765,625 combinations, .*TransformAction"),
        (spaces.MultiBinary(9), "have 512 combinations"),
        (spaces.MultiBinary(20_000), r"have 2\^20000 or more combinations"),
        (spaces.Box(-1.0, 1.0, (6,)), "have 6 continuous numbers, and at most 5 numbers are"),
        (spaces.Box(-1.0, np.inf, (1,)), "have no limits; apply gymnasium.wrappers.RescaleAction"),
        (spaces.Box(-3e38, 3e38, (1,)), "have no limits"),
        (spaces.Box(-1.0, 1.0, (0,)), r"its actions are Box\("),
        (
            spaces.Discrete(10**9),
            r"are Discrete\(1000000000\); Colobus learns Discrete \(at most 65,536",
        ),
        (spaces.Text(4), "its actions are Text.*: make one of these of them in a function"),
        (spaces.Dict(a=spaces.Discrete(2)), "its actions are Dict"),
    ],
)
def test_what_is_too_much_is_one_line(space: Any, said: str) -> None:
    with pytest.raises(ColobusError, match=said) as caught:
        actions_of("mine", space)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("space", "mask", "allowed"),
    [
        (spaces.Discrete(3), np.array([1, 0, 1], np.int8), [True, False, True]),
        (spaces.Discrete(3, start=1), [False, True, False], [False, True, False]),
        (spaces.Discrete(3), np.zeros(3), [True, True, True]),  # at the end of a game
        # of two numbers with two choices each: the first is 0, the second is free
        (spaces.MultiDiscrete([2, 2]), [1, 0, 1, 1], [True, True, False, False]),
        (spaces.MultiDiscrete([2, 3]), (np.array([0, 1]), np.array([1, 0, 1])),
         [False, False, False, True, False, True]),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], [False, False, False, True, False, True]),
        (spaces.MultiDiscrete([2, 3]), [[1, 0, 0], [0, 0, 1]], [True] + [False] * 4 + [True]),
        (spaces.MultiDiscrete([1, 2]), [[1], [0, 1]], [False, True]),
        (spaces.MultiBinary(2), [1, 0, 0, 1], [False, True, False, False]),
        (spaces.Discrete(2), None, [True, True]),
    ],
)  # fmt: skip
def test_masks_of_all_forms(space: Any, mask: Any, allowed: list[bool]) -> None:
    assert actions_of("mine", space).allowed(mask).tolist() == allowed


@pytest.mark.parametrize(
    ("space", "mask", "said"),
    [
        (
            spaces.Discrete(3),
            [1, 1],
            "mine: its action_mask has 2 numbers, must have 3, one for each",
        ),
        (
            spaces.MultiDiscrete([2, 3]),
            [1, 1],
            "has 2 numbers, must have 5, one for each choice of each",
        ),
        (spaces.Discrete(3), "all", "mine: its action_mask is all, must be 1 where allowed"),
        (spaces.Discrete(3), {0: 1}, "mine: its action_mask is {0: 1}, must be"),
    ],
)
def test_a_wrong_mask_is_one_line(space: Any, mask: Any, said: str) -> None:
    with pytest.raises(ColobusError, match=said):
        actions_of("mine", space).allowed(mask)


def test_a_run_may_have_as_many_actions_as_an_environment() -> None:
    hint = get_type_hints(Rest, include_extras=True)["actions"]
    assert vars(hint.__metadata__[0]) == vars(Range(1, MOST_SINGLE))
    assert len(actions_of("mine", spaces.Discrete(MOST_SINGLE)).table) == 65_536
