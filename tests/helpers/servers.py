"""Parameter servers that never wait, and an actor with its replay and tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from colobus.algorithms.api import Algorithm
from colobus.core.errors import Deadline
from colobus.core.types import Answer, Episode, Gradient, Trajectory, Update, Version
from colobus.nets.network import Network
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.actor import Actor, ActorSettings, Pace
from colobus.roles.parameters.server import Admission, ParameterServer, ServerSettings
from colobus.roles.policy import make_policy
from colobus.roles.tracker import ResumePoint
from conftest import stand_in

ADAM = OptimizerSettings()
FIRST = Version(0, 0)
ALONE = Admission(1)


def server_of(
    values: torch.Tensor,
    admission: Admission = ALONE,
    version: Version = FIRST,
    optimizer: OptimizerSettings = ADAM,
    kind: Any = ParameterServer,
    state: Any = None,
    **settings: Any,
) -> Any:
    """Return a server over these parameters, of another ``kind`` if a test watches it."""
    given = ServerSettings(**{"patience": 0.0, **settings})
    return kind(values, optimizer, admission, version, given, state)


def servers_of(flat: FlatParameters, count: int, **given: Any) -> list[Any]:
    """Return a server for each of so many slices, which steps that memory (`server_of`)."""
    return [server_of(flat.values[cut], **given) for cut in flat.layout.cut(count)]


class Recording(ParameterServer):
    """A server that keeps copies of what is pushed, and may fail before or after taking it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pushed: list[Gradient] = []
        self.fails = ""

    def push(self, gradient: Gradient) -> Answer:
        """Note the gradient, and take it unless this call fails."""
        self.pushed.append(gradient._replace(values=gradient.values.clone()))
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise ConnectionError("gone")
        answer = super().push(gradient)
        if fails == "after":
            raise ConnectionError("the answer was lost")
        return answer


class Reports:
    """Tracker of a learner: what it is told, in order; the run is over after so many updates."""

    def __init__(self, rounds: int = 9) -> None:
        self.rounds = rounds
        self.events: list[Any] = []
        self.saved: list[tuple[Any, ...]] = []

    @property
    def updates(self) -> list[Update]:
        return [event for event in self.events if isinstance(event, Update)]

    def begin(self, name: str) -> ResumePoint:
        return ResumePoint(0, 100)

    def report(self, update: Update) -> tuple[bool, int]:
        self.events.append(update)
        return len(self.updates) >= self.rounds, sum(each.steps for each in self.updates)

    def wants_checkpoint(self) -> bool:
        return False

    def checkpoint(self, *everything: Any) -> None:
        self.saved.append(everything)


class Sink:
    """Replay and tracker of one actor."""

    def __init__(self) -> None:
        self.trajectories: list[Trajectory] = []
        self.games: list[Episode] = []
        self.full = 1000
        self.lives = self.steps = 0

    def wait_for_room(self, actor: int = 0) -> None:
        if len(self.trajectories) >= self.full:
            raise Deadline("no room")

    def add(self, trajectory: Trajectory) -> None:
        self.trajectories.append(trajectory)

    def episodes(self, ended: Sequence[Episode]) -> None:
        self.games.extend(ended)

    def begin(self, name: str) -> ResumePoint:
        self.lives += 1
        return ResumePoint(self.lives - 1, self.steps)


def played(
    net: Network, algorithm: Algorithm, games: Any, count: int, length: int, rounds: int
) -> Sink:
    """Return what an actor with the network's parameters sends, of ``count`` games."""
    sink, settings = Sink(), ActorSettings(0, 1, count, length, 1, Pace(None))
    servers, told = [server_of(FlatParameters(net).values)], stand_in(sink)
    actor = Actor(settings, games, make_policy(net, algorithm), algorithm, servers, told, told)
    for _ in range(rounds):
        actor.step()
    actor.leave()
    return sink
