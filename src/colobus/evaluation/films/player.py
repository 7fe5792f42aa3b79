"""An agent that plays games on a screen, a step at a time, and films of that.

A screen is a game that shows its pictures: the emulator's, frames drawn large, or Gymnasium's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from colobus.core.arrays import apart
from colobus.core.fields import Range, argument
from colobus.core.seeding import game_seeds, generator
from colobus.core.types import Bytes, Frames, Ints
from colobus.envs.ale import AleGame
from colobus.envs.api import Games, GameSettings, close
from colobus.envs.frames import FrameStack, StuckGuard
from colobus.envs.make import is_atari, is_gym, make_games
from colobus.evaluation.agent import Agent, PolicyName, as_agent
from colobus.evaluation.films.file import Film as Film  # part of the public API
from colobus.evaluation.films.file import Progress, filming, format_of

Show = Callable[[Bytes], None]
"""Takes a picture uint8[H, W, 3]."""

FRAME_RATE = 6
"""Pictures per second of a game without an emulator, such as Catch."""

FRAME_ZOOM = 8
"""Pixels of a picture for each pixel of such a frame, before the film is scaled up."""

LEAST_SIDE = 240
"""Smaller pictures of an environment of Gymnasium are enlarged to this height at least."""


class Screen(ABC):
    """One game that shows its pictures."""

    rate: int  # pictures per second
    agents = 1  # that play the game (B)
    zoom: tuple[int, int] | None = None  # times higher and wider; None: as the format says
    action_names: tuple[str, ...]
    idle = False  # whether the newest step only began the next game
    _games: Any = None  # that are closed at the end

    @abstractmethod
    def start(self, show: Show) -> Frames:
        """Begin, show the first picture, return the first frames [B, H, W]."""

    @abstractmethod
    def step(self, actions: Ints, show: Show) -> tuple[Frames, float, bool]:
        """Play a step with actions int64[B] and show its pictures.

        Return the frames, the mean raw reward of the agents, and whether the game is over.
        """

    def close(self) -> None:
        """Close what the game holds open; it is not played any more."""
        close(self._games)


def make_screen(settings: GameSettings, seed: int) -> Screen:
    """Return a game that shows its pictures.

    Raises:
        ColobusError: if the environment has no pictures.
    """
    return (AtariScreen if is_atari(settings.game) else GamesScreen)(settings, seed)


class AtariScreen(Screen):
    """Shows every emulator frame."""

    rate = 60

    def __init__(self, settings: GameSettings, seed: int) -> None:
        self.game = AleGame(settings, seed)
        self.action_names = self.game.action_names
        self.played = 0  # code of the newest action in `ale_py.Action`

    def start(self, show: Show) -> Bytes:
        """Begin a game."""
        return self.game.reset(show)[None]

    def step(self, actions: Ints, show: Show) -> tuple[Bytes, float, bool]:
        """Play a step."""
        step = self.game.step(int(actions[0]), show)
        self.played = step.code
        return step.frame[None], step.reward, step.over


class GamesScreen(Screen):
    """Shows what an environment of Gymnasium draws of itself, or else the first agent's frames.

    After the last step of a game both are of the next one, and not shown.
    """

    rate = FRAME_RATE
    _games: Games

    def __init__(self, settings: GameSettings, seed: int) -> None:
        self._drawn: Callable[[], Bytes] | None = None
        if is_gym(settings.game):
            from colobus.envs.gym import GymGames

            self._games = games = GymGames(settings, np.array([seed]), pictures=True)
            self._drawn, self.rate = games.picture, games.rate
        else:
            self._games = make_games(settings, np.array([seed]))
        self.agents, self.action_names = self._games.count, self._games.action_names

    def start(self, show: Show) -> Frames:
        """Begin a game."""
        frames = self._games.reset()
        picture = self._picture(frames)
        if self._drawn is not None:
            times = -(-LEAST_SIDE // len(picture))
            self.zoom = (times, times)
        show(picture)
        return frames

    def step(self, actions: Ints, show: Show) -> tuple[Frames, float, bool]:
        """Play a step."""
        step = self._games.step(actions)
        over, self.idle = bool(step.over[0]), step.idle is not None and bool(step.idle[0])
        if not over:
            show(self._picture(step.frames))
        return step.frames, float(step.rewards.mean()), over

    def _picture(self, frames: Frames) -> Bytes:
        """Return what is drawn, or a picture uint8[8 * H, 8 * W, 3] of frames uint8[B, H, W]."""
        if self._drawn is not None:
            return self._drawn()
        large = frames[0].repeat(FRAME_ZOOM, axis=0).repeat(FRAME_ZOOM, axis=1)
        return np.repeat(large[:, :, None], 3, axis=2)


@dataclass(eq=False)
class Player:
    """Plays one game after another on a screen."""

    agent: Agent  # that plays
    screen: Screen  # the game
    random: torch.Generator  # for sampled actions
    policy: PolicyName | None = None  # the agent's own by default
    stuck: int | None = None  # limit of a `StuckGuard`; None for no guard

    def __post_init__(self) -> None:
        limit = self.agent.guarded(self.stuck)
        self._guard = StuckGuard(limit, self.screen.action_names, self.screen.agents)
        self.score = 0.0  # raw return of all games together
        self.steps = 0  # agent decisions in all games together
        self.games = 0  # that have begun
        self.over = True  # whether the newest game is over

    def begin(self, show: Show) -> None:
        """Begin the next game and show its first picture."""
        self._observed = FrameStack(self.agent.stack, self.screen.start(show))
        self._state = self.agent.initial_state(self.screen.agents)
        self._guard.begin(np.ones(self.screen.agents, dtype=np.bool_))
        self.games += 1
        self.over = False

    def step(self, show: Show, action: int | None = None) -> None:
        """Play a step and show its pictures.

        Args:
            show: takes the pictures.
            action: played instead of what the agent chooses, such as that of a person, if it is
                allowed. The agent still sees the step, so that it can go on from there.
        """
        actions, self._state = self.agent.act(
            self._observed.stacks, self.policy, self.random, state=self._state
        )
        allowed = apart(self._observed.stacks[:, -1], self.agent.net.masks)[1]
        if action is not None and (not allowed.size or allowed[:, action].all()):
            actions = np.full_like(actions, action)
        frames, reward, self.over = self.screen.step(self._guard.let_through(actions), show)
        self._observed.push(frames)
        self.score += reward
        self.steps += not self.screen.idle


def record(
    agent: Agent | str | Path,
    out: str | Path,
    seconds: float = 60.0,
    seed: int = 1,
    policy: PolicyName | None = None,
    progress: Progress | None = None,
    several: bool = False,
    stuck: int | None = None,
) -> Film:
    """Film one game from its start until it is over, at most ``seconds`` at the game's own speed.

    The file appears whole or not at all. Every second emulator frame is kept for .mp4, every
    fourth for .gif.

    Args:
        agent: that plays, with its training's settings; or the run or checkpoint to load it from.
        out: file to write; its suffix says which kind. An older one is replaced.
        seconds: of film, at most.
        seed: of the game and the sampled actions.
        policy: the agent's own by default.
        progress: called after every step with the seconds filmed and ``seconds``.
        several: begin another game whenever one is over, until ``seconds`` are filmed.
        stuck: limit of a `StuckGuard`, as in the protocol that the agent is scored by; None for
            no guard.

    Raises:
        ColobusError: if the suffix is another, ``seconds`` is not positive, ``out`` cannot be
            written, or the environment has no pictures.
    """
    agent, out = as_agent(agent), Path(out)
    seed = argument(Annotated[int, Range(0)], seed, "seed")
    form = format_of(out, seconds := float(argument(float, seconds, "seconds")))
    screen = make_screen(agent.games, int(game_seeds(seed, "film", 1)[0]))
    player = Player(agent, screen, generator(seed, "film actions"), policy, stuck)
    with closing(screen), filming(out, screen.rate) as film:

        def show(picture: Bytes) -> None:
            film.show(picture, screen.zoom or form.zoom, exact=screen.zoom is None)

        limit = seconds * screen.rate
        while film.seen < limit and (several or not player.games):
            player.begin(show)
            while not player.over and film.seen < limit:
                player.step(show)
                if progress:
                    progress(min(film.seen / screen.rate, seconds), seconds)
    filmed = film.seen / screen.rate
    return Film(out, player.score, player.steps, filmed, player.over, player.games)
