"""A vector of Atari games on ale-py's C++ vector environment.

Arguments with a surprising default are set here (docs/atari.md): rewards are raw, sticky actions
are explicit, games restart in the same step, each game has a seed of its own, and a lost life is
detected from the number of lives. The emulator does not stack frames, so each frame is stored once.
Its own frame limit is one frame behind ours, so a game that we cut off shows its last frame first;
that one frame more is of the idle step (`colobus.envs.api.Step`).
In colour the maximum of the last two frames and the resizing apply to red, green and blue each.
"""

from __future__ import annotations

import numpy as np
from ale_py import Action, ALEVectorInterface

from colobus.core.types import Bytes, Ints, State
from colobus.envs.api import GameSettings, Step, halved, in_planes, rom_of
from colobus.envs.replayed import ActionHistory, longest

UNSEEDED = -1
"""Value with which ale-py does not seed a game."""


class AtariGames:
    """``len(seeds)`` copies of one game, stepped together by ``threads`` emulator threads."""

    def __init__(self, settings: GameSettings, seeds: Ints, threads: int = 1) -> None:
        self.count = len(seeds)
        self._halves = settings.downscale == "maximum"
        side = settings.size * (2 if self._halves else 1)
        self.frame_shape = ((3 if settings.colour else 1) * settings.size, settings.size)
        self._seeds = seeds
        self._history = ActionHistory(seeds)
        self._longest = longest(settings)
        self._ale = ALEVectorInterface(
            rom_path=rom_of(settings.game),
            num_envs=self.count,
            frame_skip=settings.frame_skip,
            stack_num=1,
            img_height=side,
            img_width=side,
            grayscale=not settings.colour,
            maxpool=True,
            noop_max=settings.noop_max,
            use_fire_reset=settings.fire_at_reset,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            max_episode_steps=self._longest * settings.frame_skip + 1,  # of frames
            repeat_action_probability=settings.sticky,
            full_action_space=settings.full_actions,
            batch_size=0,
            num_threads=threads,
            thread_affinity_offset=-1,
            autoreset_mode="SameStep",
        )
        names = list(self._ale.get_action_set())
        self.actions = len(names)
        self.action_names = tuple(action.name for action in names)
        self._fires = Action.FIRE in names and settings.fire_on_life_loss
        self._fire = names.index(Action.FIRE) if self._fires else 0
        self._life_loss_ends = settings.life_loss_ends
        self._lives = np.zeros(self.count, dtype=np.int32)
        self._must_fire = np.zeros(self.count, dtype=np.bool_)
        self._strength = np.ones(self.count, dtype=np.float32)

    def reset(self) -> Bytes:
        """Start all games; return the first frames, uint8[B, H, W].

        The first call seeds the games, which loads each one again (a tenth of a second). Later
        calls continue their random streams.
        """
        frames, info = self._ale.reset(np.arange(self.count), self._seeds)
        self._seeds = np.full(self.count, UNSEEDED)
        self._lives = info["lives"]
        self._must_fire[:] = False
        self._history.begin(np.ones(self.count, dtype=np.bool_), info)
        self._newest = self._frames(frames)
        return self._newest

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (see `Step`)."""
        forced = self._must_fire
        if forced.any():
            actions = np.where(forced, self._fire, actions)
        idle = self._history.steps >= self._longest
        self._history.add(actions)
        self._ale.send(actions, self._strength)
        frames, rewards, terminated, truncated, info = self._ale.recv()
        over = terminated | truncated
        if over.any():
            self._history.begin(over, info)
        lives = info["lives"]
        lost = (lives < self._lives) & ~over  # at game over they are the next game's lives
        self._lives = lives
        self._must_fire = lost if self._fires else np.zeros_like(lost)
        ends = terminated | lost if self._life_loss_ends else terminated
        self._newest = self._frames(frames)
        gained = rewards.astype(np.float32)
        gained[idle] = 0.0
        return Step(self._newest, gained, ends & ~idle, idle, over, forced | idle, idle)

    def save(self) -> State:
        """Return what `colobus.envs.replayed.ReplayedGames` goes on from."""
        return self._history.save(self._newest)

    def _frames(self, frames: Bytes) -> Bytes:
        """Return uint8[B, H, W] from grey uint8[B, 1, H, W] or colour uint8[B, 1, H / 3, W, 3]."""
        newest = frames[:, 0]
        newest = in_planes(newest) if newest.ndim == 4 else newest
        return halved(newest) if self._halves else newest
