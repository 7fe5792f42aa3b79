"""ParameterClient: a learner's side of the parameter servers.

    client.pull()                # parameters to compute with
    client.offer(...)            # a gradient, which stays pending
    client.push()                # the pending gradient goes to all servers
    client.end_round()

There are two forms, and the learner does not know which one it has: a `LocalClient`, with which a
push is an optimizer step and nothing is pulled, or a `RemoteClient`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from colobus.core.types import (
    CPU,
    Answer,
    Exchanged,
    Gradient,
    Params,
    Remote,
    Traffic,
    Version,
    Wait,
    ask,
)
from colobus.ops.flat import FlatParameters
from colobus.roles.allreduce import Member
from colobus.roles.parameters.published import (
    ANY,
    PublishedParameters,
    pull_common,
    pull_consistent,
    pull_newest,
)
from colobus.roles.parameters.server import REPEATED, OptimizerState, ParameterServer


@dataclass(eq=False)
class ParameterClient(ABC):
    """What a learner needs of the parameter servers.

    A round is everything that a learner does with one batch.
    """

    learner: int  # index of the learner
    flat: FlatParameters  # the network to compute with, and its gradients
    servers: Sequence[ParameterServer]  # in the order of their slices
    version: Version  # of ``flat``
    target_every: int = 0  # versions between changes of the target parameters (0: none)
    member: Member | None = None
    """This learner in a group that steps alike; None if it is in none."""
    traffic: Traffic | None = None
    """Totals of what crossed to the servers so far; None if nothing does: they step this memory."""

    def __post_init__(self) -> None:
        self.outliers = 0  # gradients that were discarded so far
        self._cuts = self.flat.layout.cut(len(self.servers))
        self._pending: list[tuple[ParameterServer, Gradient]] = []
        self._counted: list[bool] = []  # one for each slice that was sent in this round
        self._targets: tuple[Version, ...] = ()  # of each target slice that was pulled last
        self._versions = (self.version,) * len(self.servers)

    @property
    def pending(self) -> bool:
        """Whether a gradient was offered that not all servers have been sent yet."""
        return bool(self._pending)

    @abstractmethod
    def go_back(self) -> bool:
        """Go back to the beginning of a round that an error has interrupted.

        Returns:
            Whether the round, or what is left of it, can be done again. If not, the parameters may
            be half updated.
        """

    @abstractmethod
    def pull(self) -> None:
        """Load the parameters for the next round into ``flat``; wait for them if need be.

        Raises:
            Deadline: if they did not come in time.
            Closed: if the run stops.
        """

    def pull_targets(self) -> dict[str, torch.Tensor]:
        """Return the target parameters by name, if they changed since the last call; else {}."""
        every = self.target_every
        if not every:
            return {}
        due = tuple(v._replace(number=v.number - v.number % every) for v in self._versions)
        if due == self._targets:
            return {}
        waiting = [ask(server, "pull_target") for server in self.servers]
        vector = torch.cat([wait().values for wait in waiting])
        self._targets = due
        return dict(self.flat.layout.views(vector.to(self.flat.values.device)))

    def offer(
        self, part: int, parts: int, samples: float | torch.Tensor, learning_rate: float
    ) -> None:
        """Make the gradient in ``flat.gradients`` pending.

        Args:
            part: number of the minibatch within the round, from 0.
            parts: minibatches of the round.
            samples: transitions behind the gradient, the sum of their weights; a tensor is read
                only where the gradients of several learners are averaged.
            learning_rate: of the step.
        """
        vector = self.flat.gradients
        if self.traffic is not None:  # the servers are elsewhere, and have no GPU
            vector, samples = _on_host(vector, samples)
        numbers = (part, parts, samples, learning_rate)
        self._pending = [
            (server, Gradient(self.learner, version, *numbers, vector[cut]))
            for server, version, cut in zip(self.servers, self._versions, self._cuts, strict=True)
        ]

    def push(self, last: bool = False) -> None:
        """Send the pending gradient to the servers; after an error, only to the rest of them.

        Args:
            last: no round follows, so nothing more is wanted of the servers.
        """
        waiting = [ask(server, "push", gradient) for server, gradient in self._pending]
        for wait in waiting:
            self._take(wait())
            del self._pending[0]

    def discard(self) -> None:
        """Drop the pending gradient as an outlier."""
        self._pending.clear()
        self.outliers += 1

    @abstractmethod
    def end_round(self) -> None:
        """Count the round: what became of its gradients, and which version comes next."""

    def states(self) -> list[tuple[Params, OptimizerState]]:
        """Return the slices with their optimizer states, in the order of the servers."""
        waiting = [ask(server, "state") for server in self.servers]
        return [wait() for wait in waiting]

    def _take(self, answer: Answer) -> None:
        # the first delivery of a repeated gradient did count
        self._counted.append(answer.counted or answer.reason == REPEATED)

    def _take_counted(self) -> list[bool]:
        """Return for each slice that was sent since the last call whether it counted."""
        counted, self._counted = self._counted, []
        return counted


class LocalClient(ParameterClient):
    """For a learner whose own memory its servers step: the only one, or one of a group.

    A round may have many minibatches, each an optimizer step, and the learner's rounds are the
    versions. A round in which nothing was pushed makes none. The learner's index is that in its
    group: each has servers of its own.
    """

    def go_back(self) -> bool:
        """See `ParameterClient`. Not possible if some servers have closed the round."""
        try:
            self.flat.check()
        except AssertionError:
            return False
        self._pending.clear()
        self._counted.clear()
        return all(server.go_back(self.version) for server in self.servers)

    def pull(self) -> None:
        """Do nothing: the servers have stepped ``flat`` itself."""

    def end_round(self) -> None:
        """Count a version, and check that the network's parameters are still views of ``flat``."""
        if self._take_counted():
            self.version = self.version._replace(number=self.version.number + 1)
            self._versions = (self.version,) * len(self.servers)
        self.flat.check()  # takes a few microseconds a parameter; nothing else would show it


@dataclass(eq=False, kw_only=True)
class RemoteClient(ParameterClient):
    """For one of several learners around servers with memory of their own.

    A round is one pull and one gradient. What was pulled is passed on to the worker's actors, so
    they cost the servers nothing. A server in another process is sent the gradient and asked for
    the next parameters in one call; nobody waits for its answer before the next round. It begins
    with a copy of the parameters in ``flat``.
    """

    cache: PublishedParameters  # where the worker's actors pull from
    asynchronous: bool = False
    """Every gradient makes a step, so the slices may be of different versions."""
    broadcast_every: int = 1
    """The cache gets the parameters when a version divisible by this is reached."""
    device: torch.device = CPU
    """On which this learner computes. The servers are in the memory of the host."""

    def __post_init__(self) -> None:
        self.flat = FlatParameters(copy.deepcopy(self.flat.module).to(self.device))
        self.traffic = Traffic()
        super().__post_init__()
        self._wanted: Version | None = None  # version to wait for; None before the first round
        self._asked: list[Wait] = []  # for what each server answers to this round's gradient

    def go_back(self) -> bool:
        """See `ParameterClient`. A round changes nothing here before its gradient is pushed."""
        return True

    def pull(self) -> None:
        """Load parameters of a version not learned with yet, and publish them to the actors."""
        slices = self._take_answers()
        if self.asynchronous:
            pulled = pull_newest(self.servers, slices)
        elif self._wanted is None:
            pulled = pull_common(self.servers)
        else:
            pulled = pull_consistent(self.servers, self._wanted, slices=slices)
        self._count(moved=pulled.moved)
        version, last, every = pulled.version, self.cache.newest.version, self.broadcast_every
        self.version, self._versions = version, pulled.versions
        self.flat.values.copy_(pulled.vector)
        sent = (last.incarnation, last.number // every)
        if (version.incarnation, version.number // every) > sent:
            self.cache.publish(Params(version, pulled.vector))

    def push(self, last: bool = False) -> None:
        """Send the pending gradient, and ask for the next parameters if the servers are remote."""
        if last or not all(isinstance(server, Remote) for server in self.servers):
            super().push(last)
            return
        wanted = ANY if self.asynchronous else self._next
        self._asked = [ask(server, "exchange", sent, wanted) for server, sent in self._pending]
        self._pending.clear()

    def pull_targets(self) -> dict[str, torch.Tensor]:
        """See `ParameterClient`."""
        targets = super().pull_targets()
        if targets:
            self._count(moved=self.flat.values.nbytes)
        return targets

    def end_round(self) -> None:
        """Count what became of the gradient, and wait for the next version from now on."""
        if not self._asked:
            self._end_traffic()
        self._wanted = self._next

    @property
    def _next(self) -> Version:
        return self.version._replace(number=self.version.number + 1)

    def _take_answers(self) -> list[Params] | None:
        """Return the slices that were asked for with the gradient of the round before, if any."""
        if not self._asked:
            return None
        answers: list[Exchanged] = [wait() for wait in self._asked]
        self._asked = []
        for answer, _ in answers:
            self._take(answer)
        self._end_traffic()
        return [params for _, params in answers]

    def _end_traffic(self) -> None:
        """Count what became of a gradient."""
        sent = self._take_counted()
        counted = sent.count(True)
        self._count(
            counted=int(counted == len(self.servers)),
            dropped=int(counted == 0 < len(sent)),
            partial=int(0 < counted < len(self.servers)),
            moved=self.flat.gradients.nbytes if sent else 0,
        )

    def _count(self, **more: int) -> None:
        assert self.traffic is not None
        sums = {name: getattr(self.traffic, name) + count for name, count in more.items()}
        self.traffic = self.traffic._replace(**sums)


def _on_host(gradients: torch.Tensor, samples: float | torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return a vector in the memory of the host and a number; from a GPU both are one read."""
    if gradients.device.type == "cpu":
        return gradients, float(samples)
    weight = torch.as_tensor(samples, dtype=torch.float32, device=gradients.device)
    both = torch.cat([gradients, weight.reshape(1)]).cpu()
    return both[:-1], float(both[-1])
