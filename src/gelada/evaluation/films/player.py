"""An agent that plays games on a screen, a step at a time."""

from __future__ import annotations

import numpy as np
import torch

from gelada.envs.frames import FrameStack
from gelada.envs.stuck_guard import StuckGuard
from gelada.evaluation.agent import Agent, Policy
from gelada.evaluation.films.screens import Screen, Show


class Player:
    """Plays one game after another on a screen.

    Args:
        agent: that plays.
        screen: the game.
        random: for sampled actions.
        policy: the agent's own by default.
        stuck: limit of a `StuckGuard`; None for no guard.
    """

    def __init__(
        self,
        agent: Agent,
        screen: Screen,
        random: torch.Generator,
        policy: Policy | None = None,
        stuck: int | None = None,
    ) -> None:
        self._agent, self._screen, self._random, self._policy = agent, screen, random, policy
        self._guard = StuckGuard(stuck, screen.action_names, screen.agents) if stuck else None
        self.score = 0.0  # raw return of all games together
        self.steps = 0  # agent decisions in all games together
        self.games = 0  # that have begun
        self.over = True  # whether the newest game is over

    def begin(self, show: Show) -> None:
        """Begin the next game and show its first picture."""
        first = self._screen.start(show)
        count, height, width = first.shape
        self._observed = FrameStack(count, self._agent.stack, (height, width), first.dtype)
        self._observed.reset(first)
        self._state = self._agent.initial_state(count)
        if self._guard:
            self._guard.begin(np.ones(count, dtype=np.bool_))
        self.games += 1
        self.over = False

    def step(self, show: Show, action: int | None = None) -> None:
        """Play a step and show its pictures.

        Args:
            show: takes the pictures.
            action: played instead of what the agent chooses, such as that of a person. The agent
                still sees the step, so that it can go on from there.
        """
        actions, self._state = self._agent.act(
            self._observed.stacks, self._policy, self._random, state=self._state
        )
        if action is not None:
            actions = np.full_like(actions, action)
        if self._guard:
            actions = self._guard.let_through(actions)
        frames, reward, self.over = self._screen.step(actions, show)
        self._observed.push(frames)
        self.score += reward
        self.steps += 1
