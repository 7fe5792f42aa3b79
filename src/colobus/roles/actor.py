"""Actor: plays a vector of games and sends trajectories.

actor = Actor(...)
while True:
    actor.step()    # pull parameters, play a rollout of T steps, send the trajectory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from colobus.algorithms.api import Algorithm
from colobus.algorithms.exploration import Lasting, Player
from colobus.core.seeding import game_seeds, generator
from colobus.core.timing import Clock, now
from colobus.core.types import Bools, Episode, Floats, Frames, Ints, State, Trajectory, Version
from colobus.envs.api import Games, Savable, Step, close
from colobus.roles.parameters.published import ANY, Pulled, Source, pull_consistent, pull_newest
from colobus.roles.policy import Policy
from colobus.roles.replay.api import ReplayWriter
from colobus.roles.snapshot import ResumeGames, as_array, restoring, resumed_games
from colobus.roles.tracker import ResumePoint, Tracker
from colobus.roles.update_schedule import ONE_EACH, UpdateSchedule
from colobus.runtime.system import ACTORS


class Rollout(NamedTuple):
    """``T`` steps of ``B`` games, filled one step after the other: fields of a `Trajectory`."""

    frames: Frames
    ages: Ints
    actions: Ints
    rewards: Floats
    terminated: Bools
    truncated: Bools
    mask: Bools

    @classmethod
    def begun(cls, frames: Frames, ages: Ints, length: int) -> Rollout:
        """Return one of ``length`` steps (T), none of which was played.

        Args:
            frames: [B, K, H, W], the observation before the first step.
            ages: int64[B], steps since each game's first observation.
            length: T.
        """
        count, depth = frames.shape[:2]
        of_steps = (count, length)
        rollout = cls(
            np.empty((count, length + depth, *frames.shape[2:]), frames.dtype),
            np.empty((count, length + 1), dtype=np.int64),
            np.empty(of_steps, dtype=np.int64),
            np.empty(of_steps, dtype=np.float32),
            *(np.empty(of_steps, dtype=np.bool_) for _ in range(3)),
        )
        rollout.frames[:, :depth], rollout.ages[:, 0] = frames, ages
        return rollout

    def add(self, t: int, actions: Ints, step: Step) -> None:
        """Write down step ``t``: the actions that were chosen int64[B], and what came of them."""
        self.frames[:, t - self.actions.shape[1]] = step.frames  # those before it are at the front
        self.actions[:, t], self.rewards[:, t] = actions, step.rewards
        self.terminated[:, t], self.truncated[:, t] = step.terminated, step.truncated
        self.mask[:, t] = ~(step.forced | step.truncated)
        self.ages[:, t + 1] = np.where(step.over, 0, self.ages[:, t] + 1)


SAVE_SECONDS = 5.0
"""Seconds between two states that an actor hands over (in a deterministic run: every round)."""


@dataclass(frozen=True)
class Pace:
    """Which version of the parameters an actor plays with. A version is a round of the learner.

    Before trajectory ``r`` an actor waits for version ``r - ahead``, so it is at most ``ahead``
    rollouts ahead of the learner. With ``exactly`` it plays with that version even if there is a
    newer one, so the result does not depend on the speed of the roles (``--deterministic``). With
    ``ahead`` None the actor takes the newest version and waits only for room in its replay. This
    is for runs in which an actor's rounds and the versions are not in step. With an
    ``update_schedule`` that makes another number of versions of each round, that many are waited
    for. If only versions divisible by ``every`` are published, the version is rounded down to one
    of them. With ``mixed``, as of asynchronous servers that an actor itself pulls from, it is the
    newest slice of each, as there need not be a version that all have.
    """

    ahead: int | None = 1
    exactly: bool = False
    update_schedule: UpdateSchedule = ONE_EACH
    every: int = 1
    mixed: bool = False


@dataclass(frozen=True)
class ActorSettings:
    """Settings of one actor."""

    index: int  # among all actors of the run
    actors: int  # number of actors of the run
    games: int  # played at the same time; each has a row for each of its agents
    length: int  # steps of a rollout (T)
    seed: int  # of the run
    pace: Pace = Pace()
    first: Version | None = None  # of round 0 of a deterministic run (None: the first one pulled)
    streams: int | None = None  # incarnation in the seeds (None: that of the parameters)


@dataclass(eq=False)
class Actor:
    """Plays games with a policy. A runtime calls `step` in a loop.

    The algorithm decides how the actor explores (`colobus.algorithms.exploration`). Exploration is
    on the CPU, with the same numbers for a policy on any device.
    """

    niceness = ACTORS

    settings: ActorSettings
    make_games: Callable[[Ints], Games]  # from seeds
    policy: Policy  # scores the actions, with the parameters that the actor pulls
    algorithm: Algorithm  # how to explore
    sources: Sequence[Source]  # of parameters, in the order of their slices
    replay: ReplayWriter  # takes the trajectories
    tracker: Tracker  # takes finished episodes
    loaded: Games | None = None  # to begin with, instead of games of ``make_games``
    resume: ResumeGames | None = None
    """Makes games that go on from a saved state (None: games always begin anew)."""

    def __post_init__(self) -> None:
        self.name = f"actor-{self.settings.index}"
        self.clock = Clock()
        self.finished = False
        self.device = self.policy.device
        self.sources = self.policy.needed(self.sources)
        self._round = self._first_round = 0
        self._begun: ResumePoint | None = None
        self._saved: State | None = None  # what this actor goes on from
        self._anew = False  # after an error it does not
        self._first = self.settings.first
        self._games: Games | None = None
        self._last_save = now()

    def step(self) -> None:
        """Pull parameters, play ``length`` steps and send the trajectory."""
        if self._begun is None:
            self._begin()
        with self.clock("wait for room"):
            self.replay.wait_for_room(self.settings.index)
        with self.clock("wait for parameters"):
            pulled = self._pull()
        with self.clock("load parameters"):
            self.policy.load(pulled)
        version = pulled.version
        if self._games is None:
            with self.clock("start games"):
                self._start_games(version)
        with torch.inference_mode():
            trajectory, episodes = self._play(version)
        if episodes:
            self.tracker.episodes(episodes)
        self._hand_over()
        self._round += 1
        self.replay.add(trajectory)
        self.clock.steps += 1

    def restart(self) -> None:
        """Begin with new games after an error. The current trajectory is lost."""
        close(self._games)
        self._games = None
        self._begun = None
        self._anew = True
        self.policy.forget()

    def leave(self) -> None:
        """Close the games; a runtime calls this when the actor plays no more."""
        for games in (self._games, self.loaded):
            close(games)

    def _begin(self) -> None:
        """Ask the tracker where the run is, and for a state to go on from.

        In a deterministic run the rounds go on too, as if this actor had never stopped.
        """
        begun, self._first_round = self.tracker.begin(self.name), self._round
        saved = self._saved = None if self._anew or self.resume is None else begun.saved
        if saved is not None and self.settings.first is not None:
            begun = ResumePoint(saved["life"], saved["steps"])
            self._round, self._first_round = saved["round"], saved["first_round"]
        self._begun = begun

    def _pull(self) -> Pulled:
        """Wait for the parameters of the next rollout and return them."""
        first, pace, wanted = self._first, self.settings.pace, ANY
        if pace.mixed:
            return pull_newest(self.sources)
        if first is not None and pace.ahead is not None:
            versions = pace.update_schedule.versions(max(self._round - pace.ahead, 0))
            number = first.number + versions
            wanted = first._replace(number=max(number - number % pace.every, first.number))
        pulled = pull_consistent(self.sources, wanted, pace.exactly and first is not None)
        if self._first is None:
            self._first = pulled.version
        return pulled

    def _start_games(self, version: Version) -> None:
        """Start the games, and the state that lasts from one rollout to the next."""
        index, length = self.settings.index, self.settings.length
        depth, saved = self.policy.net.stack, None
        exactly = self.settings.first is not None
        games = resumed_games(self._saved, self.resume, self.name, exactly)
        if games is not None:
            saved = self._saved
        else:
            assert self._begun is not None
            numbers = (index, self._incarnation(version), self._begun.life)
            seeds = game_seeds(self.settings.seed, "games", self.settings.games, *numbers)
            games, self.loaded = self.loaded or self.make_games(seeds), None
            first = games.reset()
            self._frames: Frames = np.zeros((len(first), depth, *first.shape[1:]), first.dtype)
            self._frames[:, -1] = first
        self._saved, self._games, count = None, games, games.count
        agents = count // self.settings.games
        player = Player(index, self.settings.actors, count, games.actions, agents)
        self._exploration = self.algorithm.exploration(player)
        self._state = self.policy.net.initial_state(count)
        self._ages: Ints = np.zeros(count, dtype=np.int64)
        self._scores = np.zeros(count)
        self._lengths: Ints = np.zeros(count, dtype=np.int64)
        if saved is not None:
            self._restore(saved)
        self.policy.begin(self._frames, self._ages, length)

    def _incarnation(self, version: Version) -> int:
        """Return the incarnation in the seeds of random numbers."""
        streams = self.settings.streams
        return version.incarnation if streams is None else streams

    def _restore(self, saved: State) -> None:
        """Take over everything that lasts from one rollout to the next."""
        assert self._games is not None
        with restoring(saved, self.name, self._games, self.policy.net.stack):
            self._frames = saved["frames"].copy()
            self._ages, self._lengths = saved["ages"].copy(), saved["lengths"].copy()
            self._scores = saved["scores"].copy()
            if "state" in saved:
                self._state = torch.from_numpy(saved["state"].copy()).to(self.device)
            if isinstance(self._exploration, Lasting):
                self._exploration.restore(saved["exploration"])

    def _hand_over(self) -> None:
        """Hand the tracker what another actor needs to go on with the next rollout."""
        moment, begun = now(), self._begun
        due = self.settings.first is not None or moment - self._last_save >= SAVE_SECONDS
        if not due or self.resume is None or not isinstance(self._games, Savable):
            return
        assert begun is not None
        self._last_save = moment
        saved: State = {
            "round": self._round + 1,
            "first_round": self._first_round,
            "life": begun.life,
            "steps": begun.steps,
            "games": self._games.save(),
            "frames": self._frames.copy(),
            "ages": self._ages.copy(),
            "lengths": self._lengths.copy(),
            "scores": self._scores.copy(),
        }
        if self._state is not None:
            saved["state"] = as_array(self._state, len(self._ages))
        if isinstance(self._exploration, Lasting):
            saved["exploration"] = self._exploration.save()
        self.tracker.keep(self.name, saved)

    def _play(self, version: Version) -> tuple[Trajectory, list[Episode]]:
        """Play ``length`` steps. Return the trajectory and the episodes that ended in it."""
        assert self._games is not None
        length, clock = self.settings.length, self.clock
        games, policy = self._games, self.policy
        rollout = Rollout.begun(self._frames, self._ages, length)
        all_scores: list[torch.Tensor] = []
        finished: list[Episode] = []
        state, before = self._state, as_array(self._state, games.count)
        self._begin_rollout(version)
        for t in range(length):
            with clock("act"):
                scores, state = policy.evaluate(t, state)
                scores = scores.cpu()  # waits for a GPU, once a step: the emulator needs actions
                all_scores.append(scores)
                acted = self._exploration.choose(t, scores).numpy()
            with clock("emulate"):
                step = games.step(acted)
            with clock("act"):
                # stacks and states need the next game's first frame, which a last one would replace
                learned = step.learned if state is None and policy.net.stack == 1 else None
                rollout.add(t, acted, learned or step)
                policy.add(t, step.frames, step.over)
                if state is not None and step.over.any():
                    over = torch.from_numpy(step.over).to(self.device)
                    state = state.masked_fill(over.unsqueeze(1), 0.0)
                finished += self._finish(step)
        self._frames, self._ages = rollout.frames[:, length:], rollout.ages[:, length]
        self._state = state
        with clock("act"):
            actions, rewards = torch.from_numpy(rollout.actions), rollout.rewards
            explored = self._exploration.end(torch.stack(all_scores, dim=1), actions, rewards)
        log_probs = explored.log_probs.numpy()
        known = (*rollout, log_probs, explored.independent, before)
        return Trajectory(self.settings.index, self._round, version, *known), finished

    def _begin_rollout(self, version: Version) -> None:
        """Tell the exploration that a rollout begins.

        It estimates the steps of the run as if all actors had played as many as this one.
        """
        settings, begun, games = self.settings, self._begun, self._games
        assert begun is not None
        assert games is not None
        numbers = (settings.index, self._incarnation(version), begun.life, self._round)
        random = generator(settings.seed, "actor", *numbers)
        rounds = self._round - self._first_round
        played = rounds * settings.length * games.count * settings.actors
        self._exploration.begin(self.policy.net, settings.length, begun.steps + played, random)

    def _finish(self, step: Step) -> list[Episode]:
        """Add up raw rewards and return the episodes that ended with this step."""
        over = step.over
        self._scores += step.rewards
        self._lengths += 1 if step.idle is None else ~step.idle
        if not over.any():
            return []
        index = self.settings.index
        ended = [
            Episode(index, self._round, float(self._scores[b]), int(self._lengths[b]))
            for b in np.flatnonzero(over)
        ]
        self._scores[over] = 0.0
        self._lengths[over] = 0
        return ended
