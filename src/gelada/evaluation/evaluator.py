"""Evaluator: plays full games without learning, by a named protocol."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np
import torch

from gelada.core.errors import GeladaError
from gelada.core.seeding import game_seeds, generator
from gelada.core.types import Bools, Bytes, Ints
from gelada.envs.ale import AleGame
from gelada.envs.api import GameSettings
from gelada.envs.make import action_names, make_games
from gelada.envs.stuck_guard import StuckGuard
from gelada.evaluation.agent import Agent, Policy
from gelada.evaluation.protocols import Evaluation, Played, find_protocol
from gelada.evaluation.start_states import Starts

THREADS = 2
"""Threads that play, each its part of the games: one acts while the other emulates."""

SIDE_BY_SIDE = 16
"""Games played side by side, at most: more act faster, but wait longer for the last game."""

Report = Callable[[int, int], None]
"""Called with the number of finished games and of all games."""


def evaluate(
    agent: Agent,
    protocol: str = "training",
    episodes: int | None = None,
    policy: Policy | None = None,
    seed: int = 1,
    progress: Report | None = None,
    starts: Starts | None = None,
) -> Evaluation:
    """Play full games; the same arguments give the same games.

    How many games each environment plays is fixed before they begin (equal, or one fewer), so
    short games are not counted more often than long ones. Ctrl-C ends the evaluation early and
    keeps the games that are over.

    Args:
        agent: that plays.
        protocol: name in `gelada.evaluation.protocols.PROTOCOLS`.
        episodes: games to play; the protocol's number by default, with ``starts`` one from each
            (more begin again at the first).
        policy: the protocol's own by default, or the agent's if it has none.
        seed: of the games and the sampled actions; they differ from all games of training.
        progress: called about five times a second.
        starts: where the games of protocol ``human`` begin.

    Raises:
        GeladaError: if there is no such protocol, it does not suit the game, it has starts and
            there are none or the other way round, episodes < 1, or the policy does not suit the
            agent.
    """
    chosen = find_protocol(protocol)
    if chosen.starts != (starts is not None):
        need = "needs start states" if chosen.starts else "begins games at their beginning"
        raise GeladaError(f"protocol {protocol!r} {need}; only 'human' takes starts")
    if episodes is None:
        episodes = starts.count if starts else chosen.episodes
    if episodes < 1:
        raise GeladaError(f"episodes {episodes}: must be at least 1; leave it out for the default")
    policy = policy or chosen.policy or agent.policy
    settings = chosen.settings(agent.games)
    quotas = share_out(episodes, SIDE_BY_SIDE)
    seeds = game_seeds(seed, "evaluation", len(quotas))
    parts: list[_Part | _FromStarts] = []
    threads = min(THREADS, len(quotas))
    for i in range(threads):
        random = _actions_from(seed, i)
        if starts:
            numbers = range(i, episodes, threads)
            parts.append(_FromStarts(agent, settings, starts, numbers, policy, random))
        else:
            own = (seeds[i::THREADS], quotas[i::THREADS])
            parts.append(_Part(agent, settings, *own, policy, random, chosen.stuck))
    _play(parts, episodes, progress)
    games = sorted(game for part in parts for game in part.games)
    return Evaluation(
        protocol=chosen,
        settings=settings,
        action_names=action_names(settings),
        policy=policy,
        epsilon=agent.epsilon,
        seed=seed,
        steps=agent.checkpoint.steps,
        seconds=agent.checkpoint.counters.get("seconds"),
        version=agent.checkpoint.version,
        width=agent.net.width,
        episodes=episodes,
        games=tuple(game for _, _, game in games),
        starts=starts.name() if starts else None,
    )


def share_out(episodes: int, at_most: int) -> Ints:
    """Return the games that each environment plays, int64[environments], most first."""
    rounds = -(-episodes // at_most)
    count = -(-episodes // rounds)
    quotas = np.full(count, episodes // count, dtype=np.int64)
    quotas[: episodes % count] += 1
    return quotas


class _Part:
    """The environments of one thread."""

    def __init__(
        self,
        agent: Agent,
        settings: GameSettings,
        seeds: Ints,
        quotas: Ints,
        policy: Policy,
        random: torch.Generator,
        stuck: int | None,
    ) -> None:
        self._agent, self._policy, self._random, self._stuck = agent, policy, random, stuck
        self._settings, self._seeds, self._quotas = settings, seeds, quotas
        self._count = np.zeros_like(quotas)
        self._scores = np.zeros(len(quotas))
        self._lengths = np.zeros_like(quotas)
        self.games: list[tuple[int, int, Played]] = []  # number in its environment, seed, game

    def play(self, stop: threading.Event) -> None:
        """Play until every environment has played its games, or until told to stop."""
        torch.set_num_threads(1)  # holds for this thread only
        games = make_games(self._settings, self._seeds)
        stacks: Bytes = np.zeros(
            (games.count, self._agent.stack, *games.frame_shape), dtype=np.uint8
        )
        stacks[:, -1] = games.reset()
        guard = StuckGuard(self._stuck, games.action_names, games.count) if self._stuck else None
        while np.any(self._count < self._quotas) and not stop.is_set():
            actions = self._agent.act(stacks, self._policy, self._random)
            step = games.step(guard.let_through(actions) if guard else actions)
            stacks[:, :-1] = stacks[:, 1:]
            stacks[:, -1] = step.frames
            self._scores += step.rewards
            self._lengths += 1
            if step.over.any():
                stacks[step.over, :-1] = 0  # a game's first stack is black but for its newest
                self._finish(step.over, step.truncated, guard.pressed if guard else None)
                if guard:
                    guard.begin(step.over)

    def _finish(self, over: Bools, truncated: Bools, pressed: Ints | None) -> None:
        """Keep the games that are over and wanted."""
        for b in np.flatnonzero(over & (self._count < self._quotas)):
            played = Played(
                float(self._scores[b]),
                int(self._lengths[b]),
                bool(truncated[b]),
                int(pressed[b]) if pressed is not None else 0,
            )
            self.games.append((int(self._count[b]), int(self._seeds[b]), played))
        self._count[over] += 1
        self._scores[over] = 0.0
        self._lengths[over] = 0


class _Begun:
    """One game that began at a start."""

    def __init__(self, game: AleGame, starts: Starts, depth: int) -> None:
        self._game, self._starts, self._depth = game, starts, depth

    def begin(self, number: int) -> None:
        """Go to the start of game ``number``; the first stack is what was seen there."""
        start = number % self._starts.count
        seen = self._game.replay(self._starts.states[start], self._starts.actions[start])
        self.number, self.stack = number, seen[-self._depth :].copy()
        self.score, self.steps, self.truncated = 0.0, 0, False

    def step(self, action: int) -> bool:
        """Play one step; return whether the game is over."""
        step = self._game.step(action)
        self.stack[:-1] = self.stack[1:]
        self.stack[-1] = step.frame
        self.score, self.steps = self.score + step.reward, self.steps + 1
        self.truncated = step.truncated
        return step.over


class _FromStarts:
    """The games of one thread that begin at starts, each number once and in order."""

    def __init__(
        self,
        agent: Agent,
        settings: GameSettings,
        starts: Starts,
        numbers: Sequence[int],
        policy: Policy,
        random: torch.Generator,
    ) -> None:
        self._agent, self._policy, self._random = agent, policy, random
        self._settings, self._starts, self._numbers = settings, starts, numbers
        self.games: list[tuple[int, int, Played]] = []  # number, start, game

    def play(self, stop: threading.Event) -> None:
        """Play all games, or until told to stop."""
        torch.set_num_threads(1)  # holds for this thread only
        waiting = deque(self._numbers)
        playing = []
        for _ in range(min(-(-SIDE_BY_SIDE // THREADS), len(waiting))):
            game = AleGame(self._settings, seed=1)  # nothing is drawn: no no-ops, not sticky
            playing.append(_Begun(game, self._starts, self._agent.stack))
            playing[-1].begin(waiting.popleft())
        while playing and not stop.is_set():
            stacks = np.stack([one.stack for one in playing])
            actions = self._agent.act(stacks, self._policy, self._random)
            over = [one.step(int(a)) for one, a in zip(playing, actions, strict=True)]
            for one in (one for one, ended in zip(playing, over, strict=True) if ended):
                played = Played(one.score, one.steps, one.truncated)
                self.games.append((one.number, one.number % self._starts.count, played))
                if waiting:
                    one.begin(waiting.popleft())
                else:
                    playing = [other for other in playing if other is not one]


def _play(parts: Sequence[_Part | _FromStarts], episodes: int, progress: Report | None) -> None:
    """Play all parts, each on a thread; Ctrl-C stops them."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(parts)) as threads:
        try:
            pending = {threads.submit(part.play, stop) for part in parts}
            while pending:
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                if progress:
                    progress(sum(len(part.games) for part in parts), episodes)
                for future in done:
                    future.result()
        except KeyboardInterrupt:
            pass  # what was played is kept, and `Evaluation.lines` says that it is not all
        finally:
            stop.set()


def _actions_from(seed: int, part: int) -> torch.Generator:
    return generator(seed, "evaluation actions", part)
