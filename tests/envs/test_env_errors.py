"""Environments that do what they should not: each gets its name, what was wrong, and the fix.

In the thread of an actor, and in processes, whose games are the same.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from colobus.core.errors import ColobusError, GameFailed
from colobus.core.functions import name_of
from colobus.envs.api import GameSettings, close
from colobus.envs.gym import GymGames
from colobus.envs.single import fit
from colobus.experiment.check import check
from colobus.training import start
from colobus.training.entry import preset
from helpers import gym_toys
from helpers.players import make_experiment

SEEN = np.zeros(2, np.float32)


class Odd(gym_toys.Shaped):
    def __init__(self, begin: Any = (SEEN, {}), step: Any = (SEEN, 1.0, False, False, {})) -> None:
        super().__init__(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
        self._begin, self._step = begin, step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._begin() if callable(self._begin) else self._begin

    def step(self, action: Any) -> Any:
        return self._step() if callable(self._step) else self._step


def odd(**told: Any) -> Callable[[], Any]:
    def make() -> Any:
        return Odd(**told)

    return make


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def play(make: Callable[..., Any], steps: int = 2) -> GymGames:
    games = GymGames(GameSettings(name_of(make)), np.array([1, 2]))
    games.reset()
    for _ in range(steps):
        games.step(np.array([0, 1]))
    return games


def step(at: int, value: Any) -> tuple[Any, ...]:
    """Return a right step with another value in one place."""
    found: list[Any] = [SEEN, 1.0, False, False, {}]
    found[at] = value
    return tuple(found)


NAN = np.array([0, np.nan], np.float32)


BEGINNINGS = [
    (SEEN, "its reset returned one ndarray, must be a tuple of an observation and a diction"),
    ((SEEN,), "its reset returned 1 values"),
    ((SEEN, None), r"its reset returned 2 values \(ndarray, NoneType\), must be a tuple"),
    (None, "its reset returned one NoneType"),
    ((NAN, {}), "game 0 of 2, step 0: its observation has nan; let the env"),
]
STEPS = [
    ((SEEN, 1.0, False, {}), r"its step returned 4 values .*must be a tuple of 5: observation"),
    (SEEN, "its step returned one ndarray"),
    (None, "its step returned one NoneType"),
    (step(0, np.zeros((2, 1))), r"its observation is float64\[2, 1\], its space says"),
    (step(0, NAN), "game 0 of 2, step 1: its observation has nan"),
    (step(1, None), "its reward is None, must be one number"),
    (step(1, "much"), "its reward is much, must be one number"),
    (step(1, [1.0, 2.0]), r"its reward is \[1.0, 2.0\] of shape \[2\], must be one number"),
    (step(1, np.nan), "game 0 of 2, step 1: its reward has nan; let the environment give"),
    (step(1, np.inf), "game 0 of 2, step 1: its reward has inf"),
    (step(2, None), "its terminated is None, must be one number"),
    (step(3, "no"), "its truncated is no, must be one number"),
    (step(4, None), r"its step returned 5 values \(ndarray, float, bool, bool, NoneType\)"),
]

WRONG = [*(("begin", *row) for row in BEGINNINGS), *(("step", *row) for row in STEPS)]


@pytest.mark.parametrize(("where", "found", "said"), WRONG)
def test_wrong_beginnings_and_steps_are_one_line(where: str, found: Any, said: str) -> None:
    with pytest.raises(ColobusError, match=rf"^test_env_errors:\S*make\S*: {said}") as error:
        play(odd(**{where: found}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        *((0, value) for value in ([0, 0], np.zeros(2))),
        *((1, value) for value in (np.array([1.0]), 1, True)),
        *((2, value) for value in (np.bool_(False), 0)),
        (3, np.array([False])),
    ],
)
def test_numbers_of_any_kind_are_numbers(at: int, value: Any) -> None:
    seen = play(odd(step=step(at, value)), 0).step(np.array([0, 1]))
    assert seen.rewards.tolist() == [1.0, 1.0]
    assert not (seen.terminated | seen.truncated | seen.over).any()


@pytest.mark.parametrize(
    "found",
    [
        [{"legal": np.arange(1)}, {"legal": np.arange(2)}, {"legal": np.arange(3)}],
        [{"a": 1}, {"a": "text"}, {"a": None}],
        [{"a": {"b": 1}}, {"a": 2}],
        [{}, {"a": [np.zeros(2)]}, {"a": np.zeros((2, 2))}],
        [{"_a": 1}, {"a": 1}, {"final_obs": 3}, {1: 2}],
    ],
)
def test_infos_are_not_joined(found: list[dict[str, Any]]) -> None:
    def make() -> Any:
        infos = itertools.cycle(found)
        return Odd(
            begin=lambda: (SEEN, next(infos)), step=lambda: (SEEN, 1.0, True, False, next(infos))
        )

    games = play(make, 6)
    assert games.step(np.array([0, 1])).rewards.tolist() == [1.0, 1.0]


LOST = (RuntimeError, ConnectionError, BrokenPipeError, ConnectionResetError, EOFError)


@pytest.mark.parametrize("error", [*(kind("lost") for kind in LOST), SystemExit(3)])
@pytest.mark.parametrize("where", ["begin", "step"])
def test_what_an_environment_raises_has_its_name(where: str, error: BaseException) -> None:
    """A simulator's own connection that ends is no process of the games."""
    said = rf"make\S* raised at test_env_errors.py:\d+: {type(error).__name__} (lost|3)$"
    with pytest.raises(GameFailed, match=said) as failed:
        play(odd(**{where: raising(error)}))
    assert failed.value.__cause__ is error
    assert failed.value.exit_code == 1


def test_the_same_environment_again_is_refused_until_the_games_with_it_are_closed() -> None:
    said = "its function returns the same environment again"
    env, other, vector = gym_toys.walk(), gym_toys.walk(), gym_toys.same_step(2)
    for make in (lambda: env, lambda: TimeLimit(env, 9)):
        with pytest.raises(ColobusError, match=said):
            play(make)
    cases: list[tuple[Any, int]] = [(lambda: other, 1), (lambda num_envs: vector, 2)]
    for make, count in cases:
        settings, seeds = GameSettings(name_of(make)), np.arange(1, 1 + count)
        games = GymGames(settings, seeds)
        with pytest.raises(ColobusError, match=said):
            GymGames(settings, seeds)
        close(games)
        assert GymGames(settings, seeds).count == count


def test_an_error_in_the_first_reset_is_told_as_it_is_and_the_next_one_is_looked_at() -> None:
    mask, errors = {"action_mask": [0, 1]}, [ConnectionError("starting")]

    def begin() -> Any:
        if errors:
            raise errors.pop()
        return SEEN, mask

    make = odd(begin=begin, step=step(4, mask))
    with pytest.raises(GameFailed, match=r"make\S* raised at .*: ConnectionError starting$"):
        fit(GameSettings(name_of(make)))
    assert play(make).step(np.array([1, 1])).frames[:, 0, 2:].tolist() == [[0, 1]] * 2


def test_masks_of_some_games_are_not_joined_with_those_of_others() -> None:
    masks = iter([np.array([1, 0], np.int8), None] * 9)
    games = play(lambda: Odd((SEEN, {"action_mask": next(masks)})), 0)
    assert sorted(games.reset()[:, 0, 2:].tolist()) == [[1, 0], [1, 1]]


def test_a_keyboard_interrupt_is_the_users_in_the_main_thread_only() -> None:
    make = odd(step=raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        play(make)
    with ThreadPoolExecutor(1) as elsewhere:
        error = elsewhere.submit(play, make).exception()
    assert isinstance(error, GameFailed)
    assert "KeyboardInterrupt" in str(error)


def walk_with(reset: Callable[..., Any]) -> Any:
    return type("Own", (gym_toys.Walk,), {"reset": reset})


def test_a_reset_without_seed_is_told_and_without_options_is_taken() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda self: (SEEN, {}), "unexpected keyword argument 'seed'"),
        (lambda self, seed, options: gym_toys.Walk.reset(self, seed=seed), "'options'"),
    ]
    for reset, said in wrong:
        with pytest.raises(ColobusError, match=rf"{said}; write it as def reset"):
            play(walk_with(reset))
    play(walk_with(lambda self, *, seed=None: gym_toys.Walk.reset(self, seed=seed)))


@pytest.mark.parametrize(
    ("at", "change", "said"),
    [
        *((at, lambda values: values[:, None], "") for at in (1, 2, 3)),
        (0, lambda seen: seen[:1], "its observations are 1, must be 2"),
        (1, lambda rewards: rewards[:1], r"its rewards are \[1\], must be \[2\]"),
        (2, lambda ends: ends[:1], r"its terminations are \[1\], must be \[2\]"),
        (3, lambda cuts: cuts[0], r"its truncations are \[\], must be \[2\]"),
        (1, lambda gained: gained * np.nan, "game 0 of 2, step 1: its reward has nan"),
    ],
)
def test_what_a_step_of_vectors_gives_is_of_all_games(at: int, change: Any, said: str) -> None:
    class Vectors(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            found: list[Any] = [*super().step(actions)]
            found[at] = change(found[at])
            return tuple(found)

    def vectors(num_envs: int) -> Any:
        return Vectors([gym_toys.walk] * num_envs)

    if not said:
        assert play(vectors, 1).count == 2
        return
    with pytest.raises(ColobusError, match=rf"vectors\S*: {said}"):
        play(vectors)


def test_a_vector_may_have_no_metadata_and_no_mode_of_its_own() -> None:
    def vectors(num_envs: int, metadata: Any = None) -> Any:
        made = SyncVectorEnv([gym_toys.walk] * num_envs)
        made.metadata = metadata
        return made

    assert play(lambda num_envs: vectors(num_envs), 1).count == 2
    with pytest.raises(ColobusError, match="its autoreset_mode is 'next', must be an Autoreset"):
        play(lambda num_envs: vectors(num_envs, {"autoreset_mode": "next"}))


def test_what_cannot_be_made_is_one_line() -> None:
    old = type("OldEnv", (), {"__module__": "gym.core"})
    wrong: list[tuple[Any, str]] = [
        (lambda: 3, "returned int, not a gymnasium Env"),
        (lambda: gym_toys.same_step(2), "one that takes num_envs returns a VectorEnv"),
        (lambda n: gym_toys.walk(), r"cannot be made: TypeError .* missing 1 .*\(at single.py:\d+"),
        (lambda: sys.exit("no"), r"cannot be made: SystemExit no \(at test_env_errors.py:\d+\)$"),
        (lambda: old(), "OldEnv of gym, not a gymnasium Env; the old gym is not Gymnasium: wrap"),
    ]
    for make, said in wrong:
        with pytest.raises(ColobusError, match=said):
            fit(GameSettings(name_of(make)))
    with pytest.raises(ColobusError, match="was asked for 2 games and made 3"):
        play(lambda num_envs: gym_toys.same_step(num_envs + 1))


def test_a_mask_that_comes_later_is_refused_and_none_is_none() -> None:
    late = odd(step=step(4, {"action_mask": [0, 1]}))
    said = r"test_env_errors:\S+: an info has an action_mask, but that of"
    for make in (late, lambda num_envs: SyncVectorEnv([late] * num_envs)):
        with pytest.raises(ColobusError, match=said):
            play(make)
    games = play(odd(begin=(SEEN, {"action_mask": None}), step=step(4, {"action_mask": [0, 1]})), 0)
    assert games.reset()[0].tolist() == [[0, 0, 1, 1]]  # both actions are allowed
    assert games.step(np.array([1, 1])).frames[0].tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize("error", [RuntimeError("the window is gone"), SystemExit(5)])
def test_an_environment_without_metadata_whose_end_fails_is_played(error: BaseException) -> None:
    class Stuck(Odd):
        metadata = None  # type: ignore[assignment]  # as some have it
        spec = {"walls": 3}  # type: ignore[assignment]  # noqa: RUF012 - of its own

        def close(self) -> None:
            raise error

    games = play(Stuck)
    close(games)
    assert games.count == 2


def test_observations_outside_their_space_are_told_once() -> None:
    with pytest.warns(UserWarning, match=r"make\S*: its observation has 2, outside of its space"):
        games = play(odd(begin=(np.array([0, 2]), {})))
    games.reset()


def test_errors_in_the_random_games_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training: new games, up to five times."""
    monkeypatch.setattr(start, "PAUSES", (0.0,) * 5)
    lines = list[str]()

    def fails(at: Callable[[int], bool]) -> Any:
        calls = itertools.count(1)  # of two threads: no number is drawn twice, or by nobody

        def found() -> Any:
            if at(call := next(calls)):
                raise ConnectionError("simulator lost")
            return SEEN, float(call % 2), True, False, {}

        return lambda: Odd(step=found)

    def begin(make: Any) -> Any:
        experiment = make_experiment(GameSettings(game=name_of(make)), stack=1)
        return start.begin(experiment, log=lines.append)

    begun = begin(fails(lambda call: call == 20))
    assert begun.statistics.mean.shape == (1, 2)
    (line,) = lines
    assert line.endswith("ConnectionError simulator lost; new games begin (1 of 5)")
    with pytest.raises(GameFailed, match=r"raised at .* ConnectionError simulator lost$"):
        begin(fails(lambda call: call > 20))
    assert 6 <= len(lines) <= 11  # of two actors, of which the second ends with the first


def test_an_interrupt_ends_random_games_with_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released, calls = threading.Event(), threading.Event(), list[int]()

    class Stop(threading.Event):
        def set(self) -> None:
            super().set()
            released.set()

    def interrupted(*_: Any, **__: Any) -> Any:
        assert begun.wait(60)
        raise KeyboardInterrupt

    def found() -> Any:
        calls.append(1)
        begun.set()
        assert released.wait(60)
        return step(0, SEEN)

    monkeypatch.setattr(start, "Event", Stop)
    monkeypatch.setattr(start, "faster_precision", interrupted)
    game = name_of(lambda: Odd(step=found))
    experiment = make_experiment(GameSettings(game=game), stack=1, precision="auto")
    with pytest.raises(KeyboardInterrupt):
        start.begin(experiment)
    assert len(calls) <= experiment.shape.topology.players * experiment.shape.games


def test_an_atari_game_of_a_function_is_hinted_at() -> None:
    import ale_py

    gymnasium.register_envs(ale_py)
    name = name_of(lambda: gymnasium.make("ALE/Pong-v5"))
    note = f"{name}: is played as it is; ALE/Pong-v5 by name has Atari's preprocessing"
    assert fit(GameSettings(name)).note == note


def four(make: Callable[..., Any], processes: int) -> Any:
    seeds = np.array([11, 12, 13, 14])
    return closing(GymGames(GameSettings(name_of(make)), seeds, processes=processes))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("make", "processes"),
    [
        (gym_toys.walk, 1),
        (lambda: gym_toys.walk(), 4),
        (gym_toys.grid, 2),
        (lambda: gymnasium.make("Taxi-v4"), 2),  # with masks of actions
    ],
)
def test_games_in_processes_are_those_in_the_thread(make: Any, processes: int) -> None:
    """Ends, cut-off games and their last observations included."""
    with four(make, 0) as ours, four(make, processes) as theirs:
        np.testing.assert_array_equal(theirs.reset(), ours.reset())
        for t in range(40):
            actions = np.random.default_rng(t).integers(2, size=4)
            for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        np.testing.assert_array_equal(theirs.reset(), ours.reset())


class Failing(gym_toys.Walk):
    def __init__(self, deed: Callable[[], Any]) -> None:
        super().__init__()
        self._deed = deed

    def step(self, action: Any) -> Any:
        return self._deed() if self.steps == 1 else super().step(action)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("deed", "kind", "said"),
    [
        (raising(ConnectionError("lost")), GameFailed, r"raised at .*:\d+: ConnectionError lost$"),
        (raising(SystemExit(3)), GameFailed, r"raised at test_env_errors.py:\d+: SystemExit 3$"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), GameFailed, "has ended: it was killed, or"),
        (lambda: None, ColobusError, "its step returned one NoneType, must be a tuple of 5"),
    ],
    ids=["raise", "exit", "kill", "nothing"],
)
def test_what_goes_wrong_in_a_process_is_one_line(
    deed: Any, kind: type[Exception], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    still = np.zeros(4, dtype=np.int64)
    with four(lambda: Failing(deed), 2) as games:
        games.reset()
        games.step(still)
        with pytest.raises(kind, match=said) as error:
            games.step(still)
        assert type(error.value) is kind
    assert capfd.readouterr().err == ""


def test_processes_share_the_games_of_an_actor() -> None:
    check(preset("CartPole-v1", env_processes=4))
    with pytest.raises(ColobusError, match=r"--env-processes 3 with --games 8: .*use 2"):
        check(preset("CartPole-v1", env_processes=3))
    with pytest.raises(ColobusError, match="--env-processes 2: has an effect only in environments"):
        preset("pong", env_processes=2)
