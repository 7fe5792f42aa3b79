"""Actor: plays a vector of games and sends trajectories.

actor = Actor(...)
while True:
    actor.step()    # pull parameters, play a rollout of T steps, send the trajectory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gelada.algorithms.api import Algorithm
from gelada.algorithms.exploration import Player
from gelada.core.seeding import game_seeds, generator
from gelada.core.timing import Clock
from gelada.core.types import Bools, Bytes, Episode, Floats, Ints, Trajectory, Version
from gelada.envs.api import Games
from gelada.nets.network import Network
from gelada.ops.flat import Layout
from gelada.roles.parameters.published import ANY
from gelada.roles.parameters.pulling import Pulled, Source, pull_consistent
from gelada.roles.replay.api import ReplayWriter
from gelada.roles.tracker import Begun, Tracker
from gelada.runtime.system import ACTORS


@dataclass(frozen=True)
class Pace:
    """Which parameters an actor plays with. Versions count batch rounds of the learner.

    Before its trajectory ``r`` an actor waits for version ``r - ahead``, so it never runs further
    ahead of the learner than that. If ``exactly``, it also plays with just that version, even if
    a newer one is there: then nothing depends on which role is faster (the deterministic mode).
    With ``ahead`` None it takes the newest and only waits for room in its replay: where versions
    are made without its own trajectories, they do not count its rounds.
    """

    ahead: int | None = 1
    exactly: bool = False


@dataclass(frozen=True)
class ActorSettings:
    """Which actor this is, and what it plays."""

    index: int  # among all actors of the run
    actors: int  # in the run
    games: int  # played side by side (B)
    length: int  # steps of a rollout (T)
    seed: int  # of the run
    pace: Pace = Pace()


class Actor:
    """Plays games with a copy of the network; active.

    How it explores is the algorithm's (`gelada.algorithms.exploration`).

    Args:
        settings: which actor this is, and what it plays.
        make_games: from seeds to games.
        net: the learner's network; a copy of what acting needs is made.
        algorithm: how to act.
        sources: of parameters, in the order of their slices.
        replay: where trajectories go.
        tracker: where finished episodes go.
        games: already loaded, to begin with instead of making them.
    """

    niceness = ACTORS

    def __init__(
        self,
        settings: ActorSettings,
        make_games: Callable[[Ints], Games],
        net: Network,
        algorithm: Algorithm,
        sources: Sequence[Source],
        replay: ReplayWriter,
        tracker: Tracker,
        games: Games | None = None,
    ) -> None:
        self.name = f"actor-{settings.index}"
        self.clock = Clock()
        self.finished = False
        self._settings, self._make_games = settings, make_games
        self._algorithm = algorithm
        self._net = net.for_acting(algorithm.acting_heads)
        self._layout = Layout(net)
        self._sources = self._layout.owners(sources, dict(self._net.named_parameters()))
        self._replay, self._tracker = replay, tracker
        self._round = self._first_round = 0
        self._begun: Begun | None = None
        self._first: Version | None = None
        self._loaded: Version | None = None
        self._games: Games | None = None
        self._given = games

    def step(self) -> None:
        """Pull parameters, play ``length`` steps and send the trajectory."""
        with self.clock("wait for room"):
            self._replay.wait_for_room()
        with self.clock("wait for parameters"):
            pulled = self._pull()
        with self.clock("load parameters"):
            self._load(pulled)
        version = pulled.version
        if self._games is None:
            with self.clock("start games"):
                self._start_games(version)
        with torch.inference_mode():
            trajectory, episodes = self._play(version)
        for episode in episodes:
            self._tracker.episode(episode)
        self._round += 1
        self._replay.add(trajectory)
        self.clock.steps += 1

    def restart(self) -> None:
        """Begin anew with fresh games after an error; the current trajectory is lost."""
        self._games = None
        self._begun = None

    def _pull(self) -> Pulled:
        """Return the parameters to play with."""
        first, pace, wanted = self._first, self._settings.pace, ANY
        if first is not None and pace.ahead is not None:
            wanted = first._replace(number=first.number + max(self._round - pace.ahead, 0))
        pulled = pull_consistent(self._sources, wanted, pace.exactly and first is not None)
        if self._first is None:
            self._first = pulled.version
        return pulled

    def _load(self, pulled: Pulled) -> None:
        """Write parameters into the network, if they are others than it has."""
        if pulled.version == self._loaded:
            return
        parameters = dict(self._net.named_parameters())
        for name, view in self._layout.views(pulled.vector, parameters):
            parameters[name].copy_(view)  # converts to the copy's own type
        self._loaded = pulled.version

    def _start_games(self, version: Version) -> None:
        """Make the environment and all that carries over from one rollout to the next."""
        index, count, length = self._settings.index, self._settings.games, self._settings.length
        self._begun, self._first_round = self._tracker.begin(self.name), self._round
        numbers = (index, version.epoch, self._begun.life)
        seeds = game_seeds(self._settings.seed, "games", count, *numbers)
        games, self._given = self._given or self._make_games(seeds), None
        first = games.reset()
        self._games = games
        player = Player(index, self._settings.actors, count, games.actions)
        self._exploration = self._algorithm.exploration(player)
        self._state = self._net.initial_state(count)
        depth = self._net.stack
        height, width = first.shape[1:]
        self._frames: Bytes = np.zeros((count, depth, height, width), dtype=np.uint8)
        self._frames[:, -1] = first
        self._ages: Ints = np.zeros(count, dtype=np.int64)
        self._scores = np.zeros(count)
        self._lengths: Ints = np.zeros(count, dtype=np.int64)
        self._ring = self._net.preprocess(torch.zeros(1)).new_empty(
            count, length + depth, height, width
        )
        steps = range(length)
        self._stacks = [self._ring[:, t : t + depth] for t in steps]  # before each step
        self._places = [self._ring[:, t + depth] for t in steps]  # of the frame after it
        self._black = self._net.black()
        self._ring[:, -depth:] = self._net.preprocess(torch.from_numpy(self._frames))

    def _play(self, version: Version) -> tuple[Trajectory, list[Episode]]:
        """Play ``length`` steps; return the trajectory and the episodes that ended in it."""
        assert self._games is not None
        count, length, depth = self._settings.games, self._settings.length, self._net.stack
        games, clock, ring = self._games, self.clock, self._ring
        frames: Bytes = np.empty((count, length + depth, *games.frame_shape), dtype=np.uint8)
        frames[:, :depth] = self._frames
        ring[:, :depth] = ring[:, -depth:].clone()
        ages: Ints = np.empty((count, length + 1), dtype=np.int64)
        ages[:, 0] = self._ages
        actions: Ints = np.empty((count, length), dtype=np.int64)
        rewards: Floats = np.empty((count, length), dtype=np.float32)
        terminated: Bools = np.empty((count, length), dtype=np.bool_)
        truncated, forced = np.empty_like(terminated), np.empty_like(terminated)
        all_scores: list[torch.Tensor] = []
        finished: list[Episode] = []
        state = first_state = self._state
        self._begin_rollout(version)
        for t in range(length):
            with clock("act"):
                scores, state = self._algorithm.act(self._net, self._stacks[t], state)
                all_scores.append(scores)
                acted = self._exploration.choose(t, scores).numpy()
            with clock("emulate"):
                step = games.step(acted)
            with clock("act"):
                frames[:, t + depth] = step.frames
                self._places[t].copy_(self._net.standardise(torch.from_numpy(step.frames)))
                actions[:, t], rewards[:, t], forced[:, t] = acted, step.rewards, step.forced
                terminated[:, t], truncated[:, t] = step.terminated, step.truncated
                ages[:, t + 1] = np.where(step.over, 0, ages[:, t] + 1)
                if step.over.any():
                    for b in np.flatnonzero(step.over):
                        ring[b, t + 1 : t + depth] = self._black
                    if state is not None:
                        state = state.masked_fill(torch.from_numpy(step.over).unsqueeze(1), 0.0)
                finished += self._finish(step.rewards, step.over)
        self._frames, self._ages, self._state = frames[:, length:], ages[:, length], state
        with clock("act"):
            explored = self._exploration.end(
                torch.stack(all_scores, dim=1), torch.from_numpy(actions), rewards
            )
        trajectory = Trajectory(
            actor=self._settings.index,
            round=self._round,
            version=version,
            frames=frames,
            ages=ages,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            mask=~(forced | truncated),
            log_probs=explored.log_probs.numpy(),
            independent=explored.independent,
            state=_as_array(first_state, count),
        )
        return trajectory, finished

    def _begin_rollout(self, version: Version) -> None:
        """Let the exploration draw its randomness, as if all actors had played as many steps."""
        settings, begun = self._settings, self._begun
        assert begun is not None
        numbers = (settings.index, version.epoch, begun.life, self._round)
        random = generator(settings.seed, "actor", *numbers)
        rounds = self._round - self._first_round
        played = rounds * settings.length * settings.games * settings.actors
        self._exploration.begin(self._net, settings.length, begun.steps + played, random)

    def _finish(self, rewards: Floats, over: Bools) -> list[Episode]:
        """Add up raw returns; return the episodes that ended with this step."""
        self._scores += rewards
        self._lengths += 1
        if not over.any():
            return []
        index = self._settings.index
        ended = [
            Episode(index, self._round, float(self._scores[b]), int(self._lengths[b]))
            for b in np.flatnonzero(over)
        ]
        self._scores[over] = 0.0
        self._lengths[over] = 0
        return ended


def _as_array(state: torch.Tensor | None, count: int) -> Floats:
    """Return a recurrent state as float32[B, S]; S is 0 where there is none."""
    if state is None:
        return np.zeros((count, 0), dtype=np.float32)
    array: Floats = state.numpy().copy()
    return array
