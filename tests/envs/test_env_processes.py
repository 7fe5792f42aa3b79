"""Environments in processes: the games of one thread, and what happens when they fail there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest

from colobus.core.errors import ColobusError, GameFailed
from colobus.core.functions import name_of
from colobus.envs.gym import GymGames
from colobus.experiment.check import check
from colobus.training.entry import preset
from helpers import gym_toys

pytestmark = pytest.mark.processes

SEEDS = np.array([11, 12, 13, 14])


@contextmanager
def opened(make: Callable[..., Any], processes: int) -> Iterator[GymGames]:
    games = GymGames(name_of(make), SEEDS, processes=processes)
    yield games
    games.close()


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
    with opened(make, 0) as ours, opened(make, processes) as theirs:
        np.testing.assert_array_equal(theirs.reset(), ours.reset())
        for t in range(40):
            actions = np.random.default_rng(t).integers(2, size=4)
            for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        np.testing.assert_array_equal(theirs.reset(), ours.reset())


class Failing(gym_toys.Walk):
    """Does in its second step what it is told."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def step(self, action: Any) -> Any:
        if self.steps == 1:
            if self._what == "raise":
                raise ConnectionError("lost")
            if self._what == "exit":
                raise SystemExit(3)
            if self._what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            return None
        return super().step(action)


@pytest.mark.parametrize(
    ("what", "kind", "said"),
    [
        ("raise", GameFailed, r"raised at test_env_processes.py:\d+: ConnectionError lost$"),
        ("exit", GameFailed, r"raised at test_env_processes.py:\d+: SystemExit 3$"),
        ("kill", GameFailed, "a process of its games has ended: it was killed, or"),
        ("nothing", ColobusError, "its step returned one NoneType, must be a tuple of 5"),
    ],
)
def test_what_goes_wrong_in_a_process_is_one_line(
    what: str, kind: type[Exception], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with opened(lambda: Failing(what), 2) as games:
        games.reset()
        games.step(np.zeros(4, dtype=np.int64))
        with pytest.raises(kind, match=said) as error:
            games.step(np.zeros(4, dtype=np.int64))
        assert type(error.value) is kind
    assert capfd.readouterr().err == ""


def test_processes_share_the_games_of_an_actor() -> None:
    check(preset("CartPole-v1", env_processes=4))
    with pytest.raises(ColobusError, match=r"--env-processes 3 with --games 8: .*use 2"):
        check(preset("CartPole-v1", env_processes=3))
    with pytest.raises(ColobusError, match="--env-processes 2: has an effect only in environments"):
        preset("pong", env_processes=2)
