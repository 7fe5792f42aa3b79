"""What an agent sees of an environment and what it may do, with all numbers by hand."""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector import SyncVectorEnv

from colobus.core.errors import ColobusError
from colobus.core.fields import Range
from colobus.core.functions import name_of
from colobus.envs.actions import MOST_SINGLE, actions_of
from colobus.envs.api import GameSettings
from colobus.envs.gym import GymGames
from colobus.envs.make import action_names, environment_of, frame_shape, is_atari, is_gym, is_vector
from colobus.envs.playing import make_env
from colobus.envs.spaces import fit_of
from colobus.runs.config import Rest
from helpers import gym_toys

TWO = Discrete(2)


def bytes_of(*shape: int) -> Any:
    return Box(0, 255, shape, np.uint8)


def floats(*shape: int) -> Any:
    return Box(0, 1, shape, np.float32)


def count(*shape: int) -> Any:
    """Return the numbers 0, 1, 2, … in a shape."""
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


BOARDS: list[tuple[Any, ...]] = [
    (True, False, [(84, 84, 3), (210, 160, 3), (96, 96, 1), (2, 2, 3), (10, 10, 7), (12, 9)]),
    (False, False, [(3, 84, 84), (3, 210, 160), (17, 19, 19)]),
    (True, True, [(8, 8, 12), (10, 9, 14), (14, 10, 9), (8, 8, 8), (9, 3, 9)]),
    (False, True, [(12, 8, 8), (7, 20, 10)]),
]
"""Whether channels are last, whether that is told, and shapes."""


@pytest.mark.parametrize(
    ("last", "told", "shape"), [(*how, shape) for *how, shapes in BOARDS for shape in shapes]
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_boards_and_their_channels(last: bool, told: bool, shape: Any, kind: Any) -> None:
    rows, columns, planes = (*shape, 1)[:3] if last else (*shape[1:], shape[0])
    found = fit_of("it", Box(0, 255 if kind == np.uint8 else 1, shape, kind), TWO)
    assert (found.planes, found.frame_shape) == (planes, (planes * rows, columns))
    assert (found.vector, found.frame_type) == (False, np.dtype(kind).name)
    assert bool(found.note) == told
    where = f"{planes} planes of {rows}x{columns}, channels {'last' if last else 'first'}"
    assert where in found.note or not told
    seen = np.random.default_rng(1).integers(256, size=shape).astype(kind)
    by_hand = seen if len(shape) == 2 or not last else np.moveaxis(seen, -1, 0)
    frame = found.frame(seen)
    np.testing.assert_array_equal(frame, by_hand.reshape(planes * rows, columns))
    assert frame.dtype == kind


VECTORS: dict[str, tuple[Any, Any, list[float]]] = {
    "vector": (floats(3), [0.5, 0.25, 1], [0.5, 0.25, 1]),
    "vector of doubles": (Box(-9, 9, (2,), np.float64), np.array([1.5, -2.0]), [1.5, -2]),
    "vector of bytes": (bytes_of(3), count(3), [0, 1, 2]),
    "whole numbers": (Box(-9, 9, (2,), np.int64), np.array([-9, 7]), [-9, 7]),
    "number": (Box(-9, 9, ()), np.float32(4), [4]),
    "unbounded table": (Box(-np.inf, np.inf, (2, 2)), [[1, 2], [3, 4]], [1, 2, 3, 4]),
    "voxels": (bytes_of(1, 1, 1, 2, 2), count(1, 1, 1, 2, 2), [0, 1, 2, 3]),
    "Discrete": (Discrete(4), 2, [0, 0, 1, 0]),
    "Discrete from 5": (Discrete(3, start=5), np.int64(7), [0, 0, 1]),
    "MultiBinary": (MultiBinary(3), np.array([1, 0, 1]), [1, 0, 1]),
    "MultiBinary of a table": (MultiBinary([1, 2]), [[0, 1]], [0, 1]),
    "MultiDiscrete": (MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
    "MultiDiscrete from 1": (MultiDiscrete([2, 2], start=[1, 4]), np.array([1, 5]), [1, 0, 0, 1]),
    "MultiDiscrete of a table": (
        MultiDiscrete(np.array([[2], [3]])), np.array([[0], [1]]), [1, 0, 0, 1, 0],
    ),
    "Tuple": (Tuple([Discrete(2), floats(2)]), (1, [0.5, 1]), [0, 1, 0.5, 1]),
    "Tuple in a Dict, as an array": (
        Dict(x=Tuple([Discrete(2), Discrete(3, start=-3)])), {"x": np.array([1, -1])},
        [0, 1, 0, 0, 1],
    ),
    "Dict in its order": (Dict(b=Discrete(2), a=floats(1)), {"b": 0, "a": [0.5]}, [1, 0, 0.5]),
    "nested": (
        Dict(x=Dict(y=floats(1)), z=Tuple([MultiBinary(1)])), {"x": {"y": [0.5]}, "z": ([1],)},
        [0.5, 1],
    ),
    "text beside numbers": (Dict(a=floats(1), mission=Text(9)), {"a": [1], "mission": "go"}, [1]),
    "mask beside numbers": (
        Dict(a=floats(1), action_mask=MultiBinary(2)), {"a": [1], "action_mask": [0, 1]}, [1, 0, 1],
    ),
    "small pictures of two sizes": (
        Dict(a=bytes_of(2, 2), b=bytes_of(1, 2)), {"a": count(2, 2), "b": count(1, 2)},
        [0, 1, 2, 3, 0, 1],
    ),
}  # fmt: skip
PICTURES: dict[str, tuple[Any, Any, list[float]]] = {
    "bools": (Box(0, 1, (2, 2), np.bool_), np.eye(2, dtype=bool), [1, 0, 0, 1]),
    "small whole numbers": (Box(0, 9, (2, 2), np.int64), np.eye(2, dtype=int), [1, 0, 0, 1]),
    "pieces of players": (Box(-6, 6, (2, 2), np.int8), np.array([[-6, 1], [0, 2]]), [-6, 1, 0, 2]),
    "picture in 0 to 1": (floats(2, 2), [[0.1, 0.2], [0.3, 0.4]], [0.1, 0.2, 0.3, 0.4]),
    "picture of doubles": (Box(-1, 1, (2, 2), np.float64), np.eye(2) - 0.5, [0.5, -0.5, -0.5, 0.5]),
    "several steps of pictures": (bytes_of(2, 2, 2, 1), count(2, 2, 2, 1), [*range(8)]),
    "two pictures": (
        Dict(a=bytes_of(2, 2), b=bytes_of(2, 2, 1)), {"a": count(2, 2), "b": count(2, 2, 1)},
        [0, 1, 2, 3, 0, 1, 2, 3],
    ),
    "picture and direction": (
        Dict(direction=Discrete(2), image=bytes_of(2, 2, 1)),
        {"direction": 1, "image": count(2, 2, 1)}, [0, 1, 2, 3, 0, 0, 0, 0, 1, 1, 1, 1],
    ),
    "picture and speed": (
        Dict(image=bytes_of(2, 2), speed=Box(-9, 9, (1,))),
        {"image": count(2, 2), "speed": [-2.5]}, [0, 1, 2, 3, -2.5, -2.5, -2.5, -2.5],
    ),
}  # fmt: skip
"""Two pixels wide; a space, what is seen in it, and its numbers."""
KINDS = VECTORS | PICTURES


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_has_all_that_is_observed(kind: str) -> None:
    """Of one environment, and of a vector, whose observations are arrays in a batch."""
    space, seen, numbers = KINDS[kind]
    shape = (1, len(numbers)) if kind in VECTORS else (len(numbers) // 2, 2)
    found = fit_of("it", space, TWO)
    assert (found.frame_shape, found.vector) == (shape, kind in VECTORS)
    frame = found.frame(seen)
    np.testing.assert_array_equal(frame.ravel(), np.array(numbers, np.float32))
    assert frame.shape == shape
    assert found.space.contains(frame)

    class Same(gym_toys.Shaped):
        def _seen(self) -> Any:
            return seen

    batch = SyncVectorEnv([lambda: Same(space)] * 2)
    both = found.frames(batch.reset(seed=1)[0])
    assert (both.shape, both.dtype.name) == ((2, *shape), found.frame_type)
    np.testing.assert_array_equal(both[0], both[1])
    np.testing.assert_array_equal(both[0], frame)


def test_parts_are_chosen_by_their_keys() -> None:
    space = Dict(a=floats(1), b=Dict(c=floats(2), d=floats(3)), e=bytes_of(50, 50), f=Text(3))
    for observe, shape in (("a", (1, 1)), ("b", (1, 5)), ("b.d,a", (1, 4)), ("e", (50, 50))):
        assert fit_of("it", space, TWO, observe).frame_shape == shape
    note = "it: the agent observes 'a', not 'b.c', 'b.d', 'e', 'f'"
    assert fit_of("it", space, TWO, "a").note == note


NOTHING = Dict(a=Text(3), action_mask=MultiBinary(2))
LOTS = Dict(image=bytes_of(50, 50), state=floats(65))


@pytest.mark.parametrize(
    ("observations", "observe", "said"),
    [
        (Text(5), "", r"its observation is Text\(.*make numbers of it in a function"),
        (spaces.Sequence(floats(1)), "", r"its observation is Sequence\("),
        (spaces.Graph(floats(1), None), "", r"its observation is Graph\("),
        (Dict(a=floats(1), h=spaces.Sequence(floats(1))), "", r"'h' is Seq.*--obs"),
        (floats(0), "", r"its observation is Box\("),
        (NOTHING, "", "it observes only 'a', 'action_mask'"),
        (LOTS, "", "it observes 65 numbers, and each would be a plane .*--observe, or in a"),
        (Dict(a=bytes_of(50, 50), b=bytes_of(60, 60)), "", "pictures of 2 sizes; .*--observe a"),
        (Dict(), "", "it observes nothing; make numbers of it in a function"),
        (None, "", "its observation_space is builtins.NoneType, must be one of gymnasium.spaces"),
        (Discrete(10**7), "", "it observes 10,000,000 numbers; choose fewer"),
        (LOTS, "imag", "--observe imag: it has no observation 'imag'; it has 'image', 'state'"),
        (floats(2), "image", "--observe image: it has no observation 'image'; they are no dict"),
    ],
)  # fmt: skip
def test_spaces_that_do_not_fit_are_one_line(observations: Any, observe: str, said: str) -> None:
    with pytest.raises(ColobusError, match=said) as error:
        fit_of("it", observations, TWO, observe)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("space", "seen", "said"),
    [
        (floats(2), np.zeros(3), r"is float64\[3\], its space says float32\[2\]"),
        (floats(2), None, "its observation is NoneType, its space says"),
        (floats(2), [[1], [2, 3]], r"its space says float32\[2\]"),
        (floats(2), {"a": [1, 2]}, "its observation is"),
        (floats(2), "go", "its observation is"),
        (bytes_of(2, 2), np.full((2, 2), 0.5), "has 0.5, its space says that its"),
        (bytes_of(2, 2), np.full((2, 2), 256), "has 256, its space says that"),
        (bytes_of(2, 2), np.zeros((2, 2, 3)), r"is float64\[2, 2, 3\], its space says uint8\[2, 2"),
        (Discrete(3), 3, r"outside its space Discrete\(3\); correct the space"),
        (Discrete(3), 1.5, r"outside its space Discrete\(3\)"),
        (Discrete(3), -1, r"outside its space Discrete\(3\)"),
        (MultiDiscrete([2, 3]), [2, 0], "outside its space MultiDiscrete"),
        (Dict(a=floats(1), b=floats(1)), {"a": [1]}, "observation 'b' is missing"),
        (Dict(a=floats(1), b=floats(1)), [1, 2], "observation 'a' is missing"),
        (Tuple([floats(1), floats(1)]), ([1],), "observation '1' is missing"),
    ],
)  # fmt: skip
def test_observations_outside_their_space_are_one_line(space: Any, seen: Any, said: str) -> None:
    with pytest.raises(ColobusError, match=f"^it: .*{said}") as error:
        fit_of("it", space, TWO).frame(seen)
    assert "\n" not in str(error.value)


def test_numbers_beyond_their_bounds_are_told() -> None:
    found = fit_of("it", Dict(a=floats(2), b=MultiBinary(1)), TWO)
    assert found.outside({"a": [0, 1], "b": [0]}) == ""
    assert found.outside({"a": [0, 1], "b": [2]}).startswith("it: its observation 'b' has 2, out")
    said = "it: its observation 'a' has 1.5, outside of its space Box(0.0, 1.0"
    assert found.outside({"a": [0, 1.5], "b": [0]}).startswith(said)


def test_a_picture_and_a_direction_are_played() -> None:
    """In training and where an agent plays afterwards."""
    name = name_of(gym_toys.grid)
    settings = GameSettings(game=name)
    assert (is_gym(name), is_atari(name), is_vector(settings)) == (True, False, False)
    assert (frame_shape(settings), environment_of(settings).planes) == ((49, 6), 7)
    assert action_names(settings) == ("0", "1", "2")
    env, played = gym_toys.grid(), make_env(settings, 1)
    games = GymGames(settings, np.array([11, 12]))
    for seed, frame in zip((11, 12), games.reset(), strict=True):
        seen = env.reset(seed=seed)[0]
        apart = frame.reshape(7, 7, 6)
        np.testing.assert_array_equal(apart[:3], seen["image"].transpose(2, 0, 1))
        for direction, plane in enumerate(apart[3:]):
            assert (plane == (direction == seen["direction"])).all()
        np.testing.assert_array_equal(played.reset(seed=seed)[0][0], frame)
    only = GymGames(GameSettings(game=name, observe="image"), np.array([11]))
    assert only.frame_shape == (21, 6)


def test_frames_do_not_change_with_the_environment() -> None:
    """An environment may return the same array each time."""

    class Counts(gym_toys.Shaped):
        own = np.zeros(2, np.float32)

        def _seen(self) -> Any:
            self.own += 1.0
            return self.own

    settings = GameSettings(name_of(lambda: Counts(Box(0, 9, (2,)))))
    games = GymGames(settings, np.array([1]))
    frames = [games.reset(), *(games.step(np.array([0])).frames for _ in range(2))]
    assert [frame[0, 0, 0] - frames[0][0, 0, 0] for frame in frames] == [0, 1, 2]


@pytest.mark.parametrize(
    ("space", "table", "names"),
    [
        (Discrete(2, start=3), [3, 4], ("3", "4")),
        (MultiDiscrete([1, 2]), [[0, 0], [0, 1]], ("0,0", "0,1")),
        (Box(0, 3, (1,), np.int64), [[0], [1], [2], [3]], ("0", "1", "2", "3")),
        (MultiDiscrete([2, 1], start=[5, -1]), [[5, -1], [6, -1]], ("5,-1", "6,-1")),
        (MultiDiscrete(np.array([[2], [1]])), [[[0], [0]], [[1], [0]]], ("0,0", "1,0")),
        (MultiBinary(1), [[0], [1]], ("0", "1")),
    ],
)  # fmt: skip
def test_each_combination_is_an_action(space: Any, table: Any, names: Any) -> None:
    actions = actions_of("mine", space)
    assert (actions.table.tolist(), actions.names) == (table, names)
    assert all(space.contains(each) for each in actions.table)


@pytest.mark.parametrize(("numbers", "values"), [(1, 15), (2, 15), (3, 5), (4, 3), (5, 3)])
def test_a_box_is_cut_into_evenly_spaced_values(numbers: int, values: int) -> None:
    """At most 256 combinations of an odd number of values, so that the middle is one."""
    space = Box(-2.0, 2.0, (numbers,))
    actions = actions_of("mine", space)
    assert actions.table.shape == (values**numbers, numbers)
    assert np.unique(actions.table[:, 0]) == pytest.approx(np.linspace(-2, 2, values))
    assert actions.table[len(actions.table) // 2].tolist() == [0.0] * numbers
    assert all(space.contains(each) for each in actions.table)


TOO_MUCH = [
    (MultiDiscrete([17, 16]), "have 272 combinations, and at most 256 combinations are"),
    (MultiDiscrete([5] * 10), "have 9,765,625 combinations, .*TransformAction"),
    (MultiBinary(9), "have 512 combinations"),
    (MultiBinary(20_000), r"have 2\^20000 or more combinations"),
    (Box(-1.0, 1.0, (6,)), "have 6 continuous numbers, and at most 5 numbers are"),
    (Box(-1.0, np.inf, (1,)), "have no limits; apply gymnasium.wrappers.RescaleAction"),
    (Box(-3e38, 3e38, (1,)), "have no limits"),
    (Box(-1.0, 1.0, (0,)), r"its actions are Box\("),
    (Discrete(10**9), r"are Discrete\(1000000000\); Colobus learns Discrete \(at most 65,536"),
    (Text(4), "its actions are Text.*: make one of these of them in a function"),
    (Dict(a=Discrete(2)), "its actions are Dict"),
]
WRONG_MASKS = [
    (Discrete(3), [1, 1], "mine: its action_mask has 2 numbers, must have 3, one for each"),
    (MultiDiscrete([2, 3]), [1, 1], "has 2 numbers, must have 5, one for each choice of each"),
    (Discrete(3), "all", "mine: its action_mask is all, must be 1 where allowed"),
    (Discrete(3), {0: 1}, "mine: its action_mask is {0: 1}, must be"),
]


@pytest.mark.parametrize(
    ("space", "mask", "said"), [*((space, None, said) for space, said in TOO_MUCH), *WRONG_MASKS]
)
def test_what_is_too_much_and_a_wrong_mask_are_one_line(space: Any, mask: Any, said: str) -> None:
    with pytest.raises(ColobusError, match=said) as caught:
        actions_of("mine", space).allowed(mask)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("space", "mask", "allowed"),
    [
        (Discrete(3), np.array([1, 0, 1], np.int8), [True, False, True]),
        (Discrete(3, start=1), [False, True, False], [False, True, False]),
        (Discrete(3), np.zeros(3), [True, True, True]),  # at the end of a game
        # of two numbers with two choices each: the first is 0, the second is free
        (MultiDiscrete([2, 2]), [1, 0, 1, 1], [True, True, False, False]),
        (MultiDiscrete([2, 3]), (np.array([0, 1]), np.array([1, 0, 1])),
         [False, False, False, True, False, True]),
        (MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], [False, False, False, True, False, True]),
        (MultiDiscrete([2, 3]), [[1, 0, 0], [0, 0, 1]], [True] + [False] * 4 + [True]),
        (MultiDiscrete([1, 2]), [[1], [0, 1]], [False, True]),
        (MultiBinary(2), [1, 0, 0, 1], [False, True, False, False]),
        (Discrete(2), None, [True, True]),
    ],
)  # fmt: skip
def test_masks_of_all_forms(space: Any, mask: Any, allowed: list[bool]) -> None:
    assert actions_of("mine", space).allowed(mask).tolist() == allowed


def test_a_run_may_have_as_many_actions_as_an_environment() -> None:
    hint = get_type_hints(Rest, include_extras=True)["actions"]
    assert vars(hint.__metadata__[0]) == vars(Range(1, MOST_SINGLE))
    assert len(actions_of("mine", Discrete(MOST_SINGLE)).table) == 65_536
