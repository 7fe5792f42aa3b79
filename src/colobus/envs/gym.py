"""Environments of Gymnasium as vectors of games: how games follow each other.

A game that terminates has no value after its last step, so the next one begins in the same step,
as in `colobus.envs.api.Step`. A game that is cut off (by a time limit) goes on to its last
observation, so that its last step is learned with the value of that. The step after it ignores the
action and shows the next game. `GymGames` marks such a step as idle: it is no step of a game, and
it is neither counted in the game's length nor learned.

An environment of its own that is no vector does this in `Beginning`. A vector of the user's begins
the next game in one of three ways. In the next step: there it does so after every game. In the same
step, or not by itself: there `GymGames` shows the last observation, lets the next game have the
idle step, and then begins it anew. A vector of another kind than `ANEW` may not be able to begin
single games: there the agent goes on with the next game, and only a learner is shown the last
observation, of every second game that is cut off. The first step of the next game is then idle for
the learner. So it learns last steps and first ones, though half of them.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from colobus.core.arrays import Bools, Bytes, Floats, Frames, Ints
from colobus.core.errors import ColobusError, place_of
from colobus.core.functions import NoPictures
from colobus.envs.actions import MASK
from colobus.envs.api import GameSettings, Step
from colobus.envs.single import (
    AT_ONCE,
    FittedEnv,
    check_apart,
    check_render_mode,
    fit,
    make,
    parameters,
    playing,
)

RATE = 30
"""Pictures per second of an environment that does not say how many it has."""

ANEW = frozenset({"SyncVectorEnv", "AsyncVectorEnv", "AtariVectorEnv"})
"""Vectors whose ``reset`` begins single games anew, also where they begin in the same step."""


class Beginning(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins the next game in the step that terminates one, and adds to the infos that it did.

    So a vector that begins games in the next step does so after those that are cut off.
    """

    def __init__(self, settings: GameSettings, render_mode: str | None) -> None:
        super().__init__(FittedEnv(settings, render_mode, infos=False))
        self._name = settings.game

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Start a game."""
        with playing(self._name):
            return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a step, and start the next game if it terminates this one."""
        with playing(self._name):
            seen, reward, terminated, truncated, info = self.env.step(action)
            if not terminated:
                return seen, reward, False, truncated, info
            seen, info = self.env.reset()
        return seen, reward, False, False, info | {AT_ONCE: True}


class GymGames:
    """A vector environment of Gymnasium as games, one for each seed.

    Args:
        settings: of the environment.
        seeds: int64[B], one for each game.
        pictures: whether `picture` will be called; the environment is then made for it.
        processes: in which the games step (0: in the thread that steps them); their number divides
            that of the games.

    Raises:
        ColobusError: if the environment does not fit, has no pictures and they are wanted, or is
            played by other games already.
    """

    def __init__(
        self, settings: GameSettings, seeds: Ints, pictures: bool = False, processes: int = 0
    ) -> None:
        name = self._name = settings.game
        self._fit, self.count = fit(settings), len(seeds)
        self.actions = self._fit.actions
        self.action_names = self._fit.action_names
        self.frame_shape = self._fit.frame_shape
        mode = "rgb_array" if pictures else None
        self._vector = "num_envs" in parameters(name)
        if pictures:
            check_render_mode(settings, "rgb_array")
        if self._vector:
            self._envs: VectorEnv[Any, Any, Any] = make(settings, self.count, mode)
        else:
            made = partial(Beginning, settings, mode)
            if processes:
                from colobus.envs.processes import InProcesses

                with playing(name):
                    self._envs = InProcesses(made, self._fit, seeds.tolist(), processes)
            else:
                self._envs = SyncVectorEnv([made] * self.count, copy=False)
        if self._envs.num_envs != self.count:
            raise ColobusError(
                f"environment {name!r}: its function was asked for {self.count} games and made "
                f"{self._envs.num_envs}"
            )
        self._metadata = self._envs.metadata or {}
        own = self._metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if own not in [*AutoresetMode, *(each.value for each in AutoresetMode)]:
            raise ColobusError(
                f"environment {name!r}: its autoreset_mode is {own!r}, must be an AutoresetMode"
            )
        self._mode = AutoresetMode(own)
        kinds = {kind.__name__ for kind in type(self._envs.unwrapped).__mro__}
        self._begins_anew = self._mode != AutoresetMode.SAME_STEP or not ANEW.isdisjoint(kinds)
        self._torn, self._hidden = self._none(), self._none()  # where games do not begin anew
        self._seeds: list[int] | None = [int(seed) for seed in seeds]
        # whose last observation is shown, so that the next step is idle
        self._terminated, self._truncated = self._none(), self._none()
        self._steps = 0  # of each game
        self._allowed: Bools | None = None  # bool[B, A], if infos of a vector say what is allowed
        if self._vector and self._fit.is_masked and self._fit.mask is None:
            self._allowed = np.ones((self.count, self.actions), dtype=np.bool_)
        self.rate = RATE
        with suppress(KeyError, TypeError, ValueError, OverflowError):  # no number, or none
            self.rate = max(round(float(self._metadata["render_fps"] or RATE)), 1)
        own_envs = [self._envs] if self._vector else getattr(self._envs, "envs", [])
        self._played = check_apart(name, own_envs)  # those in processes are looked at there

    def reset(self) -> Frames:
        """Start all games; return the first frames [B, H, W].

        The first call seeds the games. Later calls continue their random streams.
        """
        with playing(self._name):
            observations, infos = self._begin(self._seeds)
        self._seeds = None
        self._terminated, self._truncated, self._torn = (self._none() for _ in range(3))
        return self._frames(observations, infos)

    def _begin(self, seeds: list[int] | None) -> Any:
        """Return the first observations and infos. Vectors differ in how they take seeds."""
        if seeds is None:
            return self._envs.reset()
        ways: list[Any] = [seeds, np.array(seeds)]  # neither is a seed in the type
        for given in ways:
            with suppress(TypeError, gymnasium.error.Error):
                return self._envs.reset(seed=given)
        return self._envs.reset(seed=seeds[0])  # one seed for all games

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (see `Step`)."""
        self._steps += 1
        with playing(self._name):
            return self._step(self._fit.does.table[actions] if self._vector else actions)

    def _step(self, actions: Ints) -> Step:
        """Do what `step` does, with actions as the environment has them."""
        observations, gained, ends, cuts, infos = self._envs.step(actions)
        ended, cut = self._terminated, self._truncated
        idle = ended | cut
        infos = infos if isinstance(infos, dict) else {}  # a wrapper may make a list of them
        if "final_observation" in infos:  # its name until Gymnasium 1.0
            infos = {"final_obs": infos["final_observation"], **infos}
        if "final_obs" in infos and "autoreset_mode" not in self._metadata:
            self._mode, self._begins_anew = AutoresetMode.SAME_STEP, False  # it says so only now
        at_once = np.array(infos.get(AT_ONCE, self._none()))  # and the next game has begun
        gains = self._each("rewards", gained, np.float32)
        self._check_finite("reward", gains)
        terminated: Bools = self._each("terminations", ends, np.bool_) & ~idle | at_once
        truncated: Bools = self._each("truncations", cuts, np.bool_) & ~idle & ~terminated
        rewards: Floats = np.where(idle, np.float32(0.0), gains)
        frames = self._frames(observations, infos)
        if self._mode == AutoresetMode.SAME_STEP and truncated.any() and "final_obs" not in infos:
            self._begins_anew = False
        if not self._begins_anew:
            over, never = terminated | truncated, self._none()
            step = Step(frames, rewards, terminated, truncated, over, never)
            return step._replace(learned=self._learned(step, infos))
        if self._mode == AutoresetMode.NEXT_STEP:
            self._terminated = terminated & ~at_once
        else:
            at_once, anew = terminated, idle
            last = frames[truncated]
            if self._mode == AutoresetMode.DISABLED:
                anew = idle | terminated | truncated
            elif truncated.any():
                last = self._last(truncated, infos)
            if anew.any():
                frames = self._frames(*self._envs.reset(options={"reset_mask": anew}), anew)
            frames[truncated] = last
        self._truncated = truncated
        return Step(frames, rewards, terminated | ended, cut, at_once | idle, idle, idle)

    def _learned(self, step: Step, infos: dict[str, Any]) -> Step | None:
        """Return what a learner is shown of a step; None if all that the agent sees."""
        torn, cut = self._torn, step.truncated & ~self._torn
        if cut.any() and "final_obs" not in infos:
            warnings.warn(
                f"environment {self._name!r}: its vector gives no final_obs, so the last step of a "
                "game that is cut off is not learned; let it begin games in the next step",
                stacklevel=2,
            )
            return None
        shown = self._torn = cut & ~self._hidden
        self._hidden = np.where(cut, shown, self._hidden)
        if not (torn | shown).any():
            return None
        frames = step.frames.copy()
        if shown.any():
            frames[shown] = self._last(shown, infos)
        return Step(
            frames,
            np.where(torn, np.float32(0.0), step.rewards),
            step.terminated & ~torn,
            step.truncated & ~shown | torn,
            step.over & ~shown | torn,
            step.forced | torn,
        )

    def _last(self, which: Bools, infos: dict[str, Any]) -> Frames:
        """Return the last frames of the games ``which`` bool[B], from the infos' observations."""
        observations, games, allowed = infos["final_obs"], np.flatnonzero(which), None
        if self._allowed is not None:
            masks = infos.get("final_info", {}).get(MASK, np.ones((self.count, self.actions)))
            allowed = np.array([self._fit.does.allowed(masks[game]) for game in games])
        if isinstance(observations, dict):
            shown: Any = {key: value[which] for key, value in observations.items()}
            return self._checked(shown, allowed)
        return self._checked([observations[game] for game in games], allowed)

    def _none(self) -> Bools:
        return np.zeros(self.count, dtype=np.bool_)

    def picture(self) -> Bytes:
        """Return a picture uint8[H, W, 3] of the first game as it is now.

        Raises:
            NoPictures: if its ``render`` gives none.
        """
        try:
            rendered: Any = self._envs.render()
            picture = np.asarray(rendered[0] if rendered is not None else None)
        except gymnasium.error.Error as error:  # a package for drawing is missing
            raise NoPictures(f"{self._name} cannot be shown: {error}") from None
        except (Exception, SystemExit) as error:  # such as of OpenGL, without a display
            what = f"{type(error).__name__} {error} (at {place_of(error)})"
            raise NoPictures(f"{self._name} cannot be shown: its render raised {what}") from error
        if picture.ndim == 2:
            picture = picture[:, :, None]
        kind, shape = picture.dtype, picture.shape
        whole = kind == np.bool_ or np.issubdtype(kind, np.integer)
        if picture.ndim != 3 or shape[2] not in (1, 3, 4) or not picture.size or not whole:
            raise NoPictures(
                f"{self._name} cannot be shown: its render gives {kind}{list(shape)}, no picture "
                "uint8[H, W, 3]"
            )
        coloured: Bytes = picture[:, :, :3].astype(np.uint8)  # without transparency
        return coloured if coloured.shape[2] == 3 else coloured.repeat(3, axis=2)

    def close(self) -> None:
        """Close the environments."""
        self._played = set()
        self._envs.close()

    def _frames(self, observations: Any, infos: Any, new: Any = ...) -> Frames:
        """Return frames [B, H, W], copied, of all games; the ``new`` ones lose their masks."""
        infos = infos if isinstance(infos, dict) else {}
        self._fit.check_masks(infos)
        if self._allowed is not None:
            self._allowed[new] = True  # where the infos say nothing
            given = infos.get(MASK, self._allowed)
            for game in np.flatnonzero(infos.get(f"_{MASK}", ~self._none())):
                self._allowed[game] = self._fit.does.allowed(given[game])
        frames = self._checked(observations, self._allowed)
        if len(frames) != self.count:
            raise ColobusError(
                f"{self._name}: its observations are {len(frames)}, must be {self.count}"
            )
        return frames

    def _checked(self, observations: Any, allowed: Bools | None) -> Frames:
        """Return frames of observations and of what infos allow; they must be finite."""
        frames = self._fit.frames(observations, allowed) if self._vector else np.array(observations)
        self._check_finite("observation", frames)
        return frames

    def _each(self, what: str, given: Any, kind: Any) -> Any:
        """Return an array [B] of what a step gives for each game."""
        values = np.array(given, dtype=kind)
        if values.size != self.count:
            raise ColobusError(
                f"{self._name}: its {what} are {list(values.shape)}, must be [{self.count}]"
            )
        return values.reshape(self.count)

    def _check_finite(self, what: str, array: Frames) -> None:
        """Raise ColobusError if a number is infinite or none."""
        if array.dtype == np.uint8 or np.isfinite(array).all():
            return
        game, *place = np.argwhere(~np.isfinite(array))[0]
        number = array[(game, *place)]
        raise ColobusError(
            f"{self._name}: game {game} of {self.count}, step {self._steps}: its {what} has "
            f"{number:g}; let the environment give finite numbers, as by numpy.nan_to_num"
        )
