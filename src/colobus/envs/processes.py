"""Games of Gymnasium that step in processes, some in each: for slow environments.

A process has its games in a `SyncVectorEnv`, as an actor has them in its own thread, and
Gymnasium's `AsyncVectorEnv` with shared memory is around all of them. So games are the same.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorEnv,
    async_vector_env,
)
from gymnasium.vector.utils import batch_space

from colobus.core.errors import ColobusError, GameFailed
from colobus.core.functions import MakeEnv, find_environment, remember
from colobus.envs.single import AT_ONCE, Env, check_apart
from colobus.envs.spaces import Fit

WRONG = "colobus: what went wrong"
"""In the infos of `Several`: whether to try again, and why."""


class Several(gymnasium.Env[Any, Any]):
    """The games of one process. Gymnasium also makes one in its own process, for the spaces."""

    def __init__(
        self, made: Callable[[], Env], fits: Fit, seeds: list[int], function: MakeEnv | None
    ) -> None:
        self._made = [made] * len(seeds)
        self._seeds: list[int | None] = [*seeds]
        self.observation_space: Any = batch_space(fits.space, len(seeds))
        self.action_space: Any = spaces.MultiDiscrete([fits.actions] * len(seeds))
        self._envs: VectorEnv[Any, Any, Any] | None = None
        if function is not None:
            remember(fits.name, function)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start all games; the first call makes and seeds them."""
        found: tuple[Any, Any] = self._try(2, self._reset)
        return found

    def step(self, action: Any) -> Any:
        """Play a step of each game."""
        assert self._envs is not None
        return self._try(5, partial(self._envs.step, action))

    def _reset(self) -> Any:
        if self._envs is not None:
            return self._envs.reset()
        self._envs = SyncVectorEnv(self._made, copy=False)
        self._played = check_apart("of a process", self._envs.envs)
        return self._envs.reset(seed=self._seeds)

    def _try(self, values: int, call: Callable[[], Any]) -> Any:
        """Return what a call returns, or so many values of which the info says what went wrong."""
        try:
            *found, infos = call()
            return (*found, {key: infos[key] for key in (AT_ONCE,) if key in infos})
        except ColobusError as error:
            space = self.observation_space
            nothing = [np.zeros(self.action_space.shape)] * (values - 2)
            wrong = {WRONG: (isinstance(error, GameFailed), str(error))}
            return (np.zeros(space.shape, space.dtype), *nothing, wrong)


def work(*given: Any) -> None:
    """Play games until the process that trains has ended, which Ctrl-C is for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        async_vector_env._async_worker(*given)


class InProcesses(VectorEnv[Any, Any, Any]):
    """Games in processes; the next game begins in the next step.

    Args:
        made: makes one game.
        fits: how the environment fits.
        seeds: of the games.
        processes: their number, which divides that of the games.
    """

    def __init__(
        self, made: Callable[[], Env], fits: Fit, seeds: list[int], processes: int
    ) -> None:
        self.num_envs, self._shape = len(seeds), fits.frame_shape
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        several = partial(Several, made, fits, function=find_environment(fits.name))
        methods = multiprocessing.get_all_start_methods()
        multiprocessing.set_forkserver_preload(["colobus.envs.gym"])  # once for all processes
        self._envs = AsyncVectorEnv(
            [partial(several, share.tolist()) for share in np.split(np.array(seeds), processes)],
            copy=False,
            worker=work,
            context="forkserver" if "forkserver" in methods else "spawn",
            autoreset_mode=AutoresetMode.DISABLED,
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start all games."""
        seen, infos = self._envs.reset()
        return seen.reshape(-1, *self._shape), self._joined(infos)

    def step(self, actions: Any) -> Any:
        """Play a step of each game."""
        seen, *values, infos = self._envs.step(actions.reshape(self._envs.num_envs, -1))
        infos = self._joined(infos)
        return seen.reshape(-1, *self._shape), *map(np.ravel, values), infos

    def close(self, **_: Any) -> None:
        """End the processes, whatever they do."""
        # else it waits for a step, also of a dead process
        self._envs._state = async_vector_env.AsyncState.DEFAULT
        self._envs.close(terminate=True)

    def _joined(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Return in which games the next one has begun; raise what went wrong in a process."""
        for again, why in filter(None, infos.get(WRONG, ())):
            raise GameFailed(why) if again else ColobusError(why)
        return {key: infos[key].ravel() for key in (AT_ONCE,) if key in infos}
