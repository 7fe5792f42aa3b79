"""The evaluator: it plays full games by a named protocol, without learning."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from colobus.core.errors import ColobusError, program
from colobus.core.fields import Range, argument, whole_if
from colobus.core.seeding import game_seeds, generator
from colobus.core.types import Bools, Ints
from colobus.envs.ale import AleGame
from colobus.envs.api import Games, GameSettings, close
from colobus.envs.frames import FrameStack, StuckGuard
from colobus.envs.make import action_names, agents, is_gym, make_games
from colobus.evaluation.agent import Agent, PolicyName, as_agent
from colobus.evaluation.protocols import Evaluation, PlayedGame, Protocol, find_protocol
from colobus.evaluation.start_states import StartStates

THREADS = 2
"""Threads that share the games: one runs the network while the other emulates."""

SIDE_BY_SIDE = 16
"""Upper limit of the games played at the same time. More are faster at first, but the wait for the
last game is longer."""

LONGEST = 10_000
"""Steps after which a game of Gymnasium is cut off, if its environment has no limit of its own."""

Progress = Callable[[int, int], None]
"""Called with the number of finished games and of all games."""


def evaluate(
    agent: Agent | str | Path,
    protocol: str = "training",
    episodes: int | None = None,
    policy: PolicyName | None = None,
    seed: int = 1,
    progress: Progress | None = None,
    starts: StartStates | None = None,
    minutes: float | None = None,
) -> Evaluation:
    """Play full games; the same arguments give the same games.

    The number of games of each environment is fixed before the first one begins (equal, or one
    fewer), so short games do not count more often than long ones. Ctrl-C ends the evaluation early
    and keeps the finished games.

    Args:
        agent: the player, or the run or checkpoint to load it from.
        protocol: name in `colobus.evaluation.protocols.PROTOCOLS`.
        episodes: number of games, where each agent of a game counts as one (rounded up to whole
            games); by default that of the protocol, with ``starts`` one game from
            each start state (further games begin again at the first).
        policy: by default that of the protocol, or that of the agent if the protocol has none.
        seed: of the games and the sampled actions; they differ from all games of training.
        progress: called about five times a second.
        starts: start states of the games; protocol ``human`` needs them.
        minutes: after so many no further game is begun, and those that are being played go on to
            their end, so that long games count as often as short ones; the result says how many
            were asked for and played.

    Raises:
        ColobusError: if the protocol is unknown, does not suit the game, or needs start states
            that are missing (or the reverse), if ``episodes``, ``seed`` or ``minutes`` is out of
            range, or if the policy does not suit the agent.
    """
    seed = argument(Annotated[int, Range(0)], seed, "seed")
    minutes = argument(Annotated[float, Range(above=0)] | None, minutes, "minutes")
    agent, chosen = as_agent(agent), find_protocol(protocol)
    chosen = replace(chosen, stuck=agent.guarded(chosen.stuck))
    wanted = _number_of_games(chosen, episodes, starts)
    policy = policy or chosen.policy or agent.policy
    settings = chosen.settings(agent.games)
    several = agents(settings)
    episodes = -(-wanted // several) * several
    end = math.inf if minutes is None else time.monotonic() + 60.0 * minutes
    quotas = share_out(episodes // several, SIDE_BY_SIDE)
    seeds = game_seeds(seed, "evaluation", len(quotas))
    players: list[_Player] = []
    threads = min(THREADS, len(quotas))
    for i in range(threads):
        every = (agent, settings, policy, generator(seed, "evaluation actions", i), end)
        if starts:
            players.append(_StartStatePlayer(*every, starts, range(i, episodes, threads)))
        else:
            own = (seeds[i::threads], quotas[i::threads])
            players.append(_VectorPlayer(*every, *own, chosen.stuck))
    _play(players, episodes, progress)
    results = sorted(result for player in players for result in player.results)
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
        games=tuple(result for _, _, result in results),
        endless=sum(player.endless for player in players),
        left_out=sum(player.left_out for player in players),
        too_late=sum(player.too_late for player in players),
        minutes=minutes,
        starts=starts.summary() if starts else None,
    )


def _number_of_games(protocol: Protocol, episodes: int | None, starts: StartStates | None) -> int:
    """Return how many games are asked for.

    Raises:
        ColobusError: if it is none, or the protocol needs start states that are missing (or the
            reverse).
    """
    if not isinstance(starts, StartStates | None):
        raise ColobusError(f"starts {starts!r}: must be what start_states.read_starts returns")
    if protocol.starts != (starts is not None):
        need = "needs start states" if protocol.starts else "begins games at their beginning"
        raise ColobusError(f"protocol {protocol.name!r} {need}; only 'human' takes starts")
    if episodes is None:
        return starts.count if starts else protocol.episodes
    return int(argument(Annotated[int, Range(1)], whole_if(episodes, int), "episodes"))


def share_out(episodes: int, at_most: int) -> Ints:
    """Return the number of games of each environment, int64[environments], most first."""
    rounds = -(-episodes // at_most)
    count = -(-episodes // rounds)
    quotas = np.full(count, episodes // count, dtype=np.int64)
    quotas[: episodes % count] += 1
    return quotas


@dataclass(eq=False)
class _Player(ABC):
    """Plays the games of one thread."""

    agent: Agent
    settings: GameSettings
    policy: PolicyName
    random: torch.Generator
    end: float  # when no game begins any more, by `time.monotonic`

    def __post_init__(self) -> None:
        self.results: list[tuple[int, int, PlayedGame]] = []  # by number in its environment, seed
        self.endless = self.left_out = 0  # games that were cut off here, and not begun after those
        self.too_late = 0  # games that were not begun before the end

    @abstractmethod
    def play(self, stop: threading.Event) -> None:
        """Play all games, or until ``stop`` is set."""


@dataclass(eq=False)
class _VectorPlayer(_Player):
    """Plays them on a vector of games, of which each plays as many as its quota."""

    seeds: Ints  # int64[games]
    quotas: Ints  # int64[games]
    stuck: int | None  # limit of a `StuckGuard`; None for no guard

    def __post_init__(self) -> None:
        super().__post_init__()
        self._quotas = self.quotas.repeat(agents(self.settings))  # of each row
        self._finished = np.zeros_like(self._quotas)
        self._scores = np.zeros(len(self._quotas))
        self._lengths = np.zeros_like(self._quotas)
        self._longest = math.inf
        if is_gym(self.settings.game):
            from colobus.envs.single import fit  # other games start without Gymnasium

            self._longest = math.inf if fit(self.settings).limited else LONGEST

    def play(self, stop: threading.Event) -> None:
        torch.set_num_threads(1)  # holds for this thread only
        games = make_games(self.settings, self.seeds)
        try:
            self._play(games, stop)
        finally:
            close(games)

    def _play(self, games: Games, stop: threading.Event) -> None:
        observed = FrameStack(self.agent.stack, games.reset())
        guard = StuckGuard(self.stuck, games.action_names, games.count)
        state = self.agent.initial_state(games.count)
        while np.any(self._finished < self._quotas) and not stop.is_set():
            actions, state = self.agent.act(observed.stacks, self.policy, self.random, state=state)
            step = games.step(guard.let_through(actions))
            observed.push(step.frames, step.over)
            state[step.over] = 0.0
            played = np.True_ if step.idle is None else ~step.idle
            if (endless := played & (self._lengths >= self._longest)).any():
                self._leave(endless)  # not before it goes on: this step might have been its end
            self._scores += step.rewards
            self._lengths += played
            if step.over.any():
                self._finish(step.over, step.truncated, guard.pressed)
                guard.begin(step.over)
            if time.monotonic() > self.end:
                fewer = np.minimum(self._quotas, self._finished + 1)
                self.too_late += int((self._quotas - fewer).sum())
                self._quotas = fewer

    def _leave(self, endless: Bools) -> None:
        """Count games that do not end as they are; their rows cannot begin another one."""
        playing = endless & (self._finished < self._quotas)
        self.endless += int(playing.sum())
        self._finish(endless, endless, np.zeros_like(self._lengths))
        self.left_out += int((self._quotas - self._finished)[playing].sum())
        self._finished[endless] = np.maximum(self._finished, self._quotas)[endless]

    def _finish(self, over: Bools, truncated: Bools, pressed: Ints) -> None:
        """Keep the results of the finished games that count."""
        for b in np.flatnonzero(over & (self._finished < self._quotas)):
            result = PlayedGame(
                float(self._scores[b]), int(self._lengths[b]), bool(truncated[b]), int(pressed[b])
            )
            seed = self.seeds[b // agents(self.settings)]  # of its environment
            self.results.append((int(self._finished[b]), int(seed), result))
        self._finished[over] += 1
        self._scores[over] = 0.0
        self._lengths[over] = 0


class _StartStateGame:
    """One game from a start state at a time."""

    def __init__(self, agent: Agent, settings: GameSettings, starts: StartStates) -> None:
        self._game = AleGame(settings, seed=1)  # draws nothing: no no-ops, not sticky
        self._agent, self._starts = agent, starts

    def begin(self, number: int) -> None:
        """Go to the start state of game ``number``; the stack holds the frames before it.

        The agent's recurrent state is the initial one: it has not played yet.

        Raises:
            ColobusError: if the emulator cannot take the state.
        """
        self.state = self._agent.initial_state()
        start = number % self._starts.count
        try:
            frames = self._game.replay(self._starts.states[start], self._starts.actions[start])
        except (ValueError, RuntimeError, SystemError, MemoryError) as error:
            raise ColobusError(
                f"--starts {self._starts.file}: start state {start} cannot be played: {error}; "
                f"make a file with: {program()} starts RUN --out FILE"
            ) from None
        self.observed = FrameStack(self._agent.stack, frames[:1])
        for frame in frames[1:]:
            self.observed.push(frame[None])
        self.number, self.start, self.score, self.steps = number, start, 0.0, 0

    def step(self, action: int) -> PlayedGame | None:
        """Play one step; return the game if it is over."""
        step = self._game.step(action)
        self.observed.push(step.frame[None])
        self.score, self.steps = self.score + step.reward, self.steps + 1
        played = PlayedGame(self.score, self.steps, step.truncated, start=self.start)
        return played if step.over else None


@dataclass(eq=False)
class _StartStatePlayer(_Player):
    """Plays them from start states, each number once and in order. The frame limit ends them."""

    starts: StartStates
    numbers: Sequence[int]

    def play(self, stop: threading.Event) -> None:
        torch.set_num_threads(1)  # holds for this thread only
        waiting = deque(self.numbers)
        playing = []
        for _ in range(min(-(-SIDE_BY_SIDE // THREADS), len(waiting))):
            playing.append(_StartStateGame(self.agent, self.settings, self.starts))
            playing[-1].begin(waiting.popleft())
        while playing and not stop.is_set():
            stacks = np.concatenate([game.observed.stacks for game in playing])
            state = np.concatenate([game.state for game in playing])
            actions, state = self.agent.act(stacks, self.policy, self.random, state=state)
            for game, action, after in zip(tuple(playing), actions, state, strict=True):
                game.state = after[None]
                if (played := game.step(int(action))) is None:
                    continue
                self.results.append((game.number, 0, played))
                if time.monotonic() > self.end:
                    self.too_late += len(waiting)
                    waiting.clear()
                if waiting:
                    game.begin(waiting.popleft())
                else:
                    playing.remove(game)


def _play(players: Sequence[_Player], episodes: int, progress: Progress | None) -> None:
    """Run each player on a thread; Ctrl-C stops them."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(players)) as threads:
        try:
            pending = {threads.submit(player.play, stop) for player in players}
            while pending:
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                if progress:
                    progress(sum(len(player.results) for player in players), episodes)
                for future in done:
                    future.result()
        except KeyboardInterrupt:
            pass  # finished games are kept, and `Evaluation.lines` says that games are missing
        finally:
            stop.set()
