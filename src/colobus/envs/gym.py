"""Environments of Gymnasium as vectors of games: which spaces fit, and how games follow each other.

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

import inspect
import warnings
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import TransformAction, TransformObservation

from colobus.core.errors import ColobusError
from colobus.core.functions import MakeEnv, NoPictures, find_environment, import_module
from colobus.core.types import Bools, Bytes, Floats, Frames, Ints
from colobus.envs.api import Step


class Fit(NamedTuple):
    """How an environment fits."""

    actions: int
    first_action: int  # what Gymnasium calls action 0
    key: str  # of the array in a dictionary of observations; "" for an array
    shape: tuple[int, ...]  # of one observation
    planes: int  # channels of a picture; 1 for a vector
    frame_shape: tuple[int, int]  # H of all planes together, W
    vector: bool
    note: str  # one sentence to print, or ""
    frame_type: str = "uint8"

    @property
    def action_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(map(str, range(self.actions)))

    def frames(self, observations: Any) -> Frames:
        """Return frames [B, H, W] of observations [B, …]: uint8, or float32 of a vector."""
        array = np.asarray(observations)
        if self.vector:
            return array.astype(self.frame_type).reshape(len(array), *self.frame_shape)
        if len(self.shape) == 3 and self.shape[-1] == self.planes:
            array = np.moveaxis(array, -1, -3)
        return array.astype(np.uint8).reshape(len(array), *self.frame_shape)


def fit_of(name: str, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Fit:
    """Return how the spaces of one environment fit.

    Raises:
        ColobusError: if they do not; the message says why and what to do.
    """
    if not isinstance(actions, spaces.Discrete):
        kind = "continuous" if isinstance(actions, spaces.Box) else type(actions).__name__
        raise ColobusError(
            f"{name}: its actions are {kind} ({_short(actions)}); Colobus learns discrete actions "
            "only (a gymnasium.spaces.Discrete)"
        )
    key, box, note = "", observations, ""
    if isinstance(observations, spaces.Dict):
        key, box = _only_array(name, observations)
        left = [other for other in observations if other != key]
        note = f"{name}: the agent observes {key!r}" + (f", not {_list(left)}" if left else "")
    if not isinstance(box, spaces.Box):
        raise ColobusError(
            f"{name}: its observations are {_short(box)}; Colobus takes arrays (a gymnasium.spaces."
            "Box): apply gymnasium.wrappers.FlattenObservation in a function of your own"
        )
    planes, frame_shape = _planes(name, box)
    return Fit(
        int(actions.n),
        int(actions.start),
        key,
        box.shape,
        planes,
        frame_shape,
        len(box.shape) == 1,
        note,
        "uint8" if box.dtype == np.uint8 or len(box.shape) > 1 else "float32",
    )


def _only_array(name: str, observations: spaces.Dict) -> tuple[str, spaces.Space[Any]]:
    """Return the only array in a dictionary of observations."""
    arrays = [key for key, space in observations.items() if isinstance(space, spaces.Box)]
    if len(arrays) != 1:
        what = f"{len(arrays)} arrays ({_list(arrays)})" if arrays else "no array"
        raise ColobusError(
            f"{name}: its observations are a dictionary with {what}; Colobus takes one array: "
            "apply gymnasium.wrappers.FlattenObservation in a function of your own"
        )
    return arrays[0], observations[arrays[0]]


def _planes(name: str, box: spaces.Box) -> tuple[int, tuple[int, int]]:
    """Return the planes of an observation, and the shape (H of all planes together, W)."""
    shape = box.shape
    if len(shape) == 1:
        return 1, (1, shape[0])
    if box.dtype != np.uint8 or len(shape) not in (2, 3):
        raise ColobusError(
            f"{name}: its observations are {box.dtype}{list(shape)}; Colobus takes pictures of "
            "uint8 or vectors: apply gymnasium.wrappers.FlattenObservation in a function of your "
            "own"
        )
    if len(shape) == 2:
        return 1, (shape[0], shape[1])
    if shape[-1] <= shape[0]:  # the channels are last
        return shape[2], (shape[2] * shape[0], shape[1])
    return shape[0], (shape[0] * shape[1], shape[2])


def _short(space: spaces.Space[Any]) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))


RATE = 30
"""Pictures per second of an environment that does not say how many it has."""

_fits: dict[str, tuple[MakeEnv | None, Fit]] = {}  # with the function that they are of


def fit(name: str) -> Fit:
    """Return how an environment fits. The first call makes it once, to look at its spaces.

    Raises:
        ColobusError: if there is no such environment, it cannot be made, or it does not fit.
    """
    function = find_environment(name)
    known = _fits.get(name)
    if known is None or known[0] is not function:
        env = _make(name, 1, None)
        if isinstance(env, VectorEnv):
            found = fit_of(name, env.single_observation_space, env.single_action_space)
        else:
            found = fit_of(name, env.observation_space, env.action_space)
        env.close()
        known = _fits[name] = (function, found)
    return known[1]


def is_known(name: str) -> bool:
    """Return whether Gymnasium has an environment of this name, or a module such a function.

    Raises:
        ColobusError: if the name has a module that cannot be imported or has no such function.
    """
    if find_environment(name) is not None:
        return True
    module, _, own = name.rpartition(":")
    if module:
        import_module(module, name)
    return own in gymnasium.registry


def known_names() -> list[str]:
    """Return the environments of Gymnasium's registry, without those of the Atari emulator."""
    return [name for name, spec in gymnasium.registry.items() if "ale_py" not in str(spec)]


def open_env(name: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return one environment whose observations are arrays and whose first action is 0.

    Raises:
        ColobusError: if it cannot be made, does not fit, or has no such render mode.
    """
    env, fits = _open(name, render_mode), fit(name)
    if not fits.first_action:
        return env
    space: Any = spaces.Discrete(fits.actions)
    return TransformAction(env, lambda action: action + fits.first_action, space)


def _open(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    """Return what `open_env` does, with actions that begin where the environment's do."""
    key = fit(name).key
    if render_mode is not None:
        _check_render_mode(name, render_mode)
    env: gymnasium.Env[Any, Any] = _make(name, 1, render_mode)
    if isinstance(env, VectorEnv):
        raise ColobusError(f"environment {name!r}: its function makes vectors only")
    if not key:
        return env
    space: Any = env.observation_space
    return TransformObservation(env, lambda seen: seen[key], space[key])


ANEW = frozenset({"SyncVectorEnv", "AsyncVectorEnv", "AtariVectorEnv"})
"""Vectors whose ``reset`` begins single games anew, also where they begin in the same step."""

AT_ONCE = "colobus: terminated, and begun anew"
"""In the infos of `Beginning`."""


class Beginning(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins the next game in the step that terminates one; the only info is that it did.

    So a vector that begins games in the next step does so after those that are cut off.
    """

    @classmethod
    def made(cls, name: str, render_mode: str | None) -> Beginning:
        """Return an environment of this name; raises what `open_env` does."""
        return cls(_open(name, render_mode))

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Start a game."""
        return self.env.reset(**arguments)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a step, and start the next game if it terminates this one."""
        seen, reward, terminated, truncated, _ = self.env.step(action)
        if not terminated:
            return seen, reward, False, bool(truncated), {}
        return self.env.reset()[0], reward, False, False, {AT_ONCE: True}


class GymGames:
    """A vector environment of Gymnasium as games, one for each seed.

    Args:
        name: of the environment.
        seeds: int64[B], one for each game.
        pictures: whether `picture` will be called; the environment is then made for it.

    Raises:
        ColobusError: if the environment does not fit, or has no pictures and they are wanted.
    """

    def __init__(self, name: str, seeds: Ints, pictures: bool = False) -> None:
        self._name = name
        self._fit, self.count = fit(name), len(seeds)
        self.actions = self._fit.actions
        self.action_names = self._fit.action_names
        self.frame_shape = self._fit.frame_shape
        mode = "rgb_array" if pictures else None
        self._vector = "num_envs" in _arguments(name)
        if pictures:
            _check_render_mode(name, "rgb_array")
        if self._vector:
            self._envs: VectorEnv[Any, Any, Any] = _make(name, self.count, mode)
        else:
            make = [partial(Beginning.made, name, mode)] * self.count
            self._envs = SyncVectorEnv(make, copy=False)
        if self._envs.num_envs != self.count:
            raise ColobusError(
                f"environment {name!r}: its function was asked for {self.count} games and made "
                f"{self._envs.num_envs}"
            )
        own = self._envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._mode = AutoresetMode(own)
        kinds = {kind.__name__ for kind in type(self._envs.unwrapped).__mro__}
        self._begins_anew = self._mode != AutoresetMode.SAME_STEP or not ANEW.isdisjoint(kinds)
        self._torn, self._hidden = self._none(), self._none()  # where games do not begin anew
        self._seeds: list[int] | None = [int(seed) for seed in seeds]
        # whose last observation is shown, so that the next step is idle
        self._terminated, self._truncated = self._none(), self._none()
        self.rate = int(self._envs.metadata.get("render_fps") or RATE)

    def reset(self) -> Frames:
        """Start all games; return the first frames [B, H, W].

        The first call seeds the games. Later calls continue their random streams.
        """
        observations = self._begin(self._seeds)
        self._seeds = None
        self._terminated, self._truncated, self._torn = (self._none() for _ in range(3))
        return self._frames(observations)

    def _begin(self, seeds: list[int] | None) -> Any:
        """Return the first observations. Vectors differ in how they take seeds."""
        if seeds is None:
            return self._envs.reset()[0]
        ways: list[Any] = [seeds, np.array(seeds)]  # neither is a seed in the type
        for given in ways:
            with suppress(TypeError, gymnasium.error.Error):
                return self._envs.reset(seed=given)[0]
        return self._envs.reset(seed=seeds[0])[0]  # one seed for all games

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (see `Step`)."""
        observations, gained, ends, cuts, infos = self._envs.step(actions + self._fit.first_action)
        ended, cut = self._terminated, self._truncated
        idle = ended | cut
        infos = infos if isinstance(infos, dict) else {}  # a wrapper may make a list of them
        at_once = np.array(infos.get(AT_ONCE, self._none()))  # and the next game has begun
        terminated: Bools = np.array(ends, dtype=np.bool_) & ~idle | at_once
        truncated: Bools = np.array(cuts, dtype=np.bool_) & ~idle & ~terminated
        rewards: Floats = np.where(idle, 0.0, gained).astype(np.float32)
        frames = self._frames(observations)
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
                last = self._last(truncated, infos["final_obs"])
            if anew.any():
                frames = self._frames(self._envs.reset(options={"reset_mask": anew})[0])
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
            frames[shown] = self._last(shown, infos["final_obs"])
        return Step(
            frames,
            np.where(torn, np.float32(0.0), step.rewards),
            step.terminated & ~torn,
            step.truncated & ~shown | torn,
            step.over & ~shown | torn,
            step.forced | torn,
        )

    def _last(self, which: Bools, observations: Any) -> Frames:
        """Return the last frames of the games ``which`` bool[B], from the infos' observations."""
        if isinstance(observations, dict):
            return self._frames({key: value[which] for key, value in observations.items()})
        last: list[Any] = [observations[game] for game in np.flatnonzero(which)]
        space = self._envs.single_observation_space
        into: Any = create_empty_array(space, len(last))
        return self._frames(concatenate(space, last, into))

    def _none(self) -> Bools:
        return np.zeros(self.count, dtype=np.bool_)

    def picture(self) -> Bytes:
        """Return a picture uint8[H, W, 3] of the first game as it is now.

        Raises:
            NoPictures: if its ``render`` gives none.
        """
        try:
            rendered: Any = self._envs.render()
        except gymnasium.error.Error as error:  # a package for drawing is missing
            raise NoPictures(f"{self._name} cannot be shown: {error}") from None
        picture = np.asarray(rendered[0] if rendered is not None else None)
        if picture.ndim == 2:
            picture = picture[:, :, None]
        if picture.ndim != 3 or picture.shape[2] not in (1, 3, 4) or not picture.size:
            raise NoPictures(
                f"{self._name} cannot be shown: its render gives {picture.dtype}"
                f"{list(picture.shape)}, no picture [H, W, 3]"
            )
        coloured: Bytes = picture[:, :, :3].astype(np.uint8)  # without transparency
        return coloured if coloured.shape[2] == 3 else coloured.repeat(3, axis=2)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _frames(self, observations: Any) -> Frames:
        """Return frames [B, H, W], copied."""
        key = self._fit.key if self._vector else ""
        return self._fit.frames(observations[key] if key else observations)


def _arguments(name: str) -> frozenset[str]:
    """Return the arguments that the user's function takes; none for a name of Gymnasium."""
    function = find_environment(name)
    return frozenset() if function is None else frozenset(inspect.signature(function).parameters)


def _make(name: str, count: int, render_mode: str | None) -> Any:
    """Return an environment, or a vector of ``count`` if the user's function makes vectors.

    Raises:
        ColobusError: if it cannot be made.
    """
    function = find_environment(name)
    try:
        if function is None:
            module = name.rpartition(":")[0]
            if module:
                import_module(module, name)
            shown: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
            return gymnasium.make(name, disable_env_checker=True, **shown)
        given = {"num_envs": count, "render_mode": render_mode}
        env = function(**{key: given[key] for key in given if key in _arguments(name)})
    except (gymnasium.error.Error, ImportError) as error:  # also without what a game needs
        raise ColobusError(f"environment {name!r}: {error}") from None
    wanted = VectorEnv if "num_envs" in _arguments(name) else gymnasium.Env
    if not isinstance(env, wanted):
        raise ColobusError(
            f"environment {name!r}: its function returned {type(env).__name__}, not a gymnasium "
            f"{wanted.__name__}; one that takes num_envs returns a VectorEnv, any other an Env"
        )
    return env


def _check_render_mode(name: str, mode: str) -> None:
    """Raise ColobusError if an environment cannot be shown in this way."""
    if find_environment(name) is not None:
        if "render_mode" in _arguments(name):
            return
        raise NoPictures(
            f"{name} cannot be shown: let its function take render_mode and make the environment "
            "with it"
        )
    env = _make(name, 1, None)
    modes = env.metadata.get("render_modes", [])
    env.close()
    wanted = "rgb_array" if mode == "human" else mode  # Gymnasium shows pictures in a window
    if mode not in modes and wanted not in modes:
        has = f"only {', '.join(modes)}" if modes else "none"
        raise NoPictures(f"{name} cannot be shown: it has no render mode {mode} ({has})")
