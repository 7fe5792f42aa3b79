"""Actor: plays a vector of games and emits trajectories.

actor = Actor(...)
while True:
    actor.step()    # pull parameters, play T steps, send the trajectory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gelada.algorithms.api import Algorithm, Explore
from gelada.core.seeding import game_seeds, generator
from gelada.core.timing import Clock
from gelada.core.types import Bools, Bytes, Episode, Floats, Ints, Trajectory, Version
from gelada.envs.api import Games
from gelada.nets.network import Network
from gelada.ops.flat import Layout
from gelada.roles.parameters.pulling import Pulled, Source, pull_whole
from gelada.roles.parameters.snapshots import ANY
from gelada.roles.replay.api import ReplayWriter
from gelada.roles.tracker import Tracker
from gelada.runtime.system import ACTORS

BARREN = 2_000
"""Steps of an actor without any reward after which it explores longer ways (`Actor`)."""


@dataclass(frozen=True)
class Pace:
    """Which parameters an actor plays with. Counts are batch rounds of the learner.

    Before its trajectory ``r`` an actor waits for version ``r - ahead``, so it never runs further
    ahead of the learner than that. If ``exactly``, it also plays with just that version, even if
    a newer one is there: then nothing depends on who is faster (the deterministic mode). With
    ``ahead`` None it takes the newest and only waits for room in its replay: where versions are
    made without its own trajectories, they do not count its rounds.
    """

    ahead: int | None = 1
    exactly: bool = False


class Actor:
    """Plays ``count`` games with a copy of the network; active.

    A policy that draws each action anew gets nowhere where only a long way in one direction is
    rewarded. So an actor that has met no reward for `BARREN` steps lets every other game keep its
    noise for a whole trajectory, until it meets one: each of these games then follows a policy
    that always prefers some action, drawn with the odds of the real one (docs/recipe.md; after
    the persistence of Dabney et al. 2021, "Temporally-Extended epsilon-Greedy Exploration").

    Args:
        index: which actor this is.
        seed: of the run.
        make_games: from seeds to games.
        count: games played side by side.
        length: steps of a trajectory (T).
        net: the learner's network; a copy is made.
        algorithm: how to act.
        sources: of parameters, in the order of their slices: the servers or the worker's mirror.
        replay: where trajectories go.
        tracker: where finished games go.
        pace: how far ahead, and with which parameters.
        games: already loaded, to begin with instead of making them.
        actors: in the whole run.
        first_steps: environment steps of the run when this actor began.
    """

    niceness = ACTORS

    def __init__(
        self,
        index: int,
        seed: int,
        make_games: Callable[[Ints], Games],
        count: int,
        length: int,
        net: Network,
        algorithm: Algorithm,
        sources: Sequence[Source],
        replay: ReplayWriter,
        tracker: Tracker,
        pace: Pace,
        games: Games | None = None,
        actors: int = 1,
        first_steps: int = 0,
    ) -> None:
        self.name = f"actor-{index}"
        self.clock = Clock()
        self.finished = False
        self._index, self._seed, self._make_games = index, seed, make_games
        self._count, self._length = count, length
        self._layout = Layout(net)
        self._net = net.for_acting()
        self._algorithm = algorithm
        self._sources, self._replay, self._tracker = sources, replay, tracker
        self._pace = pace
        self._round = 0
        self._barren = 0  # steps since the last reward
        self._restarts = 0
        self._first: Version | None = None
        self._loaded: Version | None = None
        self._games: Games | None = None
        self._given = games
        self._actors, self._first_steps = actors, first_steps

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
            trajectory, games = self._play(version)
        for game in games:
            self._tracker.episode(game)
        self._round += 1
        self._replay.add(trajectory)
        self.clock.steps += 1

    def restart(self) -> None:
        """Begin anew with fresh games after an error; the current trajectory is lost."""
        self._games = None
        self._restarts += 1

    def _pull(self) -> Pulled:
        """Return the parameters to play with."""
        first, wanted = self._first, ANY
        if first is not None and self._pace.ahead is not None:
            number = first.number + max(self._round - self._pace.ahead, 0)
            wanted = first._replace(number=number)
        exactly = self._pace.exactly and first is not None
        pulled = pull_whole(self._sources, wanted, exactly)
        if self._first is None:
            self._first = pulled.version
        return pulled

    def _load(self, pulled: Pulled) -> None:
        """Write parameters into the network, if they are others than it has."""
        if pulled.version == self._loaded:
            return
        parameters = dict(self._net.named_parameters())
        for name, view in self._layout.views(pulled.vector):
            parameters[name].copy_(view)  # converts to the copy's own type
        self._loaded = pulled.version

    def _start_games(self, version: Version) -> None:
        """Make the environment and the buffers that carry over from one trajectory to the next."""
        numbers = (self._index, version.epoch, self._restarts)
        seeds = game_seeds(self._seed, "games", self._count, *numbers)
        games, self._given = self._given or self._make_games(seeds), None
        first = games.reset()
        self._games = games
        depth = self._net.stack
        height, width = first.shape[1:]
        self._frames: Bytes = np.zeros((self._count, depth, height, width), dtype=np.uint8)
        self._frames[:, -1] = first
        self._ages: Ints = np.zeros(self._count, dtype=np.int64)
        self._scores = np.zeros(self._count)
        self._lengths: Ints = np.zeros(self._count, dtype=np.int64)
        self._ring = self._net.see(torch.zeros(1)).new_empty(
            self._count, self._length + depth, height, width
        )
        steps = range(self._length)
        self._stacks = [self._ring[:, t : t + depth] for t in steps]  # before each step
        self._places = [self._ring[:, t + depth] for t in steps]  # of the frame after it
        self._black = self._net.black()
        self._ring[:, -depth:] = self._net.see(torch.from_numpy(self._frames))

    def _play(self, version: Version) -> tuple[Trajectory, list[Episode]]:
        """Play ``length`` steps; return the trajectory and the games that ended in it."""
        assert self._games is not None
        count, length, depth = self._count, self._length, self._net.stack
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
        scores: list[torch.Tensor] = []
        noise = self._noise((length, count, games.actions), version).unbind()
        finished: list[Episode] = []
        for t in range(length):
            with clock("act"):
                chosen, score = self._algorithm.act(self._net, self._stacks[t], noise[t])
                scores.append(score)
                acted = chosen.numpy()
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
                finished += self._finish(step.rewards, step.over)
        self._barren = 0 if rewards.any() else self._barren + rewards.size
        self._frames = frames[:, length:]
        self._ages = ages[:, length]
        with clock("act"):
            log_probs = self._algorithm.log_probs(
                torch.stack(scores, dim=1).flatten(0, 1), torch.from_numpy(actions).flatten()
            )
        trajectory = Trajectory(
            actor=self._index,
            round=self._round,
            version=version,
            frames=frames,
            ages=ages,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            mask=~(forced | truncated),
            log_probs=log_probs.view(count, length).numpy(),
            state=np.zeros((count, 0), dtype=np.float32),
        )
        return trajectory, finished

    def _noise(self, shape: tuple[int, int, int], version: Version) -> torch.Tensor:
        """Return the randomness of a trajectory's actions, float32[T, B, A]."""
        numbers = (self._index, version.epoch, self._restarts, self._round)
        random = generator(self._seed, "actor", *numbers)
        noise = self._algorithm.noise(shape, random, self._explore())
        if self._barren >= BARREN and self._algorithm.stochastic:
            noise[:, ::2] = noise[:1, ::2]
        return noise

    def _explore(self) -> Explore:
        """Return who explores, and when: as if all actors had played as long as this one."""
        steps = self._round * self._length * self._count * self._actors
        return Explore(self._index, self._actors, self._first_steps + steps)

    def _finish(self, rewards: Floats, over: Bools) -> list[Episode]:
        """Add up raw returns; return the games that ended with this step."""
        self._scores += rewards
        self._lengths += 1
        if not over.any():
            return []
        ended = [
            Episode(self._index, self._round, float(self._scores[b]), int(self._lengths[b]))
            for b in np.flatnonzero(over)
        ]
        self._scores[over] = 0.0
        self._lengths[over] = 0
        return ended
