"""Environments of Gymnasium in which a trained agent plays: they show what it was trained on."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation

from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds
from colobus.core.types import Frames
from colobus.envs.api import GameSettings, halved, in_planes
from colobus.envs.make import ENVIRONMENTS, agents, frame_shape, gymnasium_id, is_gym, make_games

Env = gymnasium.Env[Any, Any]
Envs = SyncVectorEnv


def make_env(
    settings: GameSettings, stack: int, render_mode: str | None = None, infos: bool = True
) -> Env:
    """Return one environment with the preprocessing of training.

    Of an Atari game the no-ops are drawn by Gymnasium's wrapper, which begins no game without one,
    and the frame limit counts them and may cut a step short.

    Args:
        settings: how the games of training were played. Rewards are raw, and a lost life does not
            end a game.
        stack: frames of an observation.
        render_mode: such as "human" or "rgb_array".
        infos: whether an environment of Gymnasium gives its infos.

    Raises:
        ColobusError: if the environment cannot be made or has no such render mode.
    """
    if agents(settings) > 1:
        raise ColobusError(f"{settings.game} is no environment of Gymnasium: it has several agents")
    if settings.game in ENVIRONMENTS:
        if render_mode is not None:
            raise ColobusError(f"{settings.game} cannot be shown: it has no render modes")
        env: Env = OneGame(settings)
    elif is_gym(settings.game):
        from colobus.envs.single import FittedEnv, fit

        env, fits = FittedEnv(settings, render_mode, infos), fit(settings)
        if fits.vector and stack == 1:
            space = spaces.Box(-np.inf, np.inf, fits.frame_shape[1:], np.float32)
            return TransformObservation(env, lambda seen: seen[0].astype(np.float32), space)
    else:
        env = _atari(settings, render_mode)
    return FrameStackObservation(env, stack, padding_type="zero")


def make_vector(
    settings: GameSettings, stack: int, count: int, render_mode: str | None = None
) -> Envs:
    """Return so many of these environments, whose games begin again in the same step."""
    if not isinstance(count, int | np.integer) or count < 1:
        raise ColobusError(
            f"num_envs {count}: must be at least 1 and a whole number; leave it out for one "
            "environment"
        )
    make = [partial(make_env, settings, stack, render_mode, infos=False)] * count
    return SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP)


def _atari(settings: GameSettings, render_mode: str | None) -> Env:
    """Return an Atari game with the preprocessing of `colobus.envs.atari`."""
    import ale_py

    gymnasium.register_envs(ale_py)
    env: Env = gymnasium.make(
        gymnasium_id(settings.game),
        frameskip=1,
        repeat_action_probability=settings.sticky,
        full_action_space=settings.full_actions,
        max_num_frames_per_episode=settings.max_frames,
        max_episode_steps=-1,
        render_mode=render_mode,
        disable_env_checker=True,
    )
    names = env.get_wrapper_attr("get_action_meanings")()
    halves = settings.downscale == "maximum"
    fire = names.index("FIRE") if "FIRE" in names else None
    at_reset = fire if settings.fire_at_reset else None
    if at_reset is not None:
        env = FireAtReset(env, at_reset)
    noops = max(settings.noop_max - 1 - (at_reset is not None), 0) if names[0] == "NOOP" else 0
    env = AtariPreprocessing(
        env,
        noop_max=noops,
        frame_skip=settings.frame_skip,
        screen_size=settings.size * (2 if halves else 1),
        grayscale_obs=not settings.colour,
    )
    space = spaces.Box(0, 255, frame_shape(settings), np.uint8)
    for change in [in_planes] * settings.colour + [halved] * halves:
        env = TransformObservation(env, change, space)
    if fire is not None and settings.fire_on_life_loss:
        env = FireAfterLifeLoss(env, fire)
    return env


class FireAtReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE for one frame at the start of each game."""

    def __init__(self, env: Env, fire: int) -> None:
        super().__init__(env)
        self._fire = fire

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Start a game."""
        self.env.reset(**arguments)
        seen, _, _, _, info = self.env.step(self._fire)
        return seen, info


class FireAfterLifeLoss(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE instead of the next action after a lost life."""

    def __init__(self, env: Env, fire: int) -> None:
        super().__init__(env)
        self._fire, self._lives, self._lost = fire, 0, False

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Start a game."""
        seen, info = self.env.reset(**arguments)
        self._lives, self._lost = int(info.get("lives", 0)), False
        return seen, info

    def step(self, action: Any) -> Any:
        """Play a step; the action is ignored after a lost life."""
        step = self.env.step(self._fire if self._lost else action)
        lives = int(step[4].get("lives", 0))
        self._lost, self._lives = lives < self._lives, lives
        return step


class OneGame(gymnasium.Env[Frames, Any]):
    """One game of `ENVIRONMENTS`. Its last observation is that before the last step."""

    def __init__(self, settings: GameSettings) -> None:
        self._settings = settings
        games = make_games(settings, np.array([1]))
        first = games.reset()[0]
        low, high = (0, 255) if first.dtype == np.uint8 else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, first.shape, first.dtype.type)
        self.action_space = spaces.Discrete(games.actions)
        self._games, self._seeded = games, False
        self._seen: Frames = np.zeros_like(first)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Start a game; with a seed the same one each time, without one at first any."""
        super().reset(seed=seed, options=options)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._seeded = True
            self._games = make_games(self._settings, game_seeds(seed, "environment", 1))
        self._seen = self._games.reset()[0]
        return self._seen, {}

    def step(self, action: Any) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Play one step."""
        step = self._games.step(np.array([int(action)]))
        if not step.over[0]:
            self._seen = step.frames[0]
        ended, cut = bool(step.terminated[0]), bool(step.truncated[0])
        return self._seen, float(step.rewards[0]), ended, cut, {}
