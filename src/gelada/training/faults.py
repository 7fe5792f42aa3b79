"""FaultSchedule on purpose, for experiments: ``gelada train … --faults straggler=500ms,link=10MB``.

Nothing else in Gelada knows of it: a plan drawn with trouble has these roles in the place of the
usual ones.
"""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from gelada.algorithms.api import Algorithm
from gelada.core.errors import GeladaError, nearest
from gelada.core.types import Answer, Aux, Batch, Gradient, Params, Version
from gelada.roles.backprop import Compute, Learned
from gelada.roles.parameters.client import ParameterClient
from gelada.roles.parameters.published import ANY, PublishedParameters
from gelada.roles.parameters.server import Counts, OptimizerState, ParameterServer
from gelada.training.experiment import Experiment

FORM = "compute=50ms,straggler=500ms,delay=4,link=10MB,kill=worker:30s,stop=server:45s"

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

VICTIMS = ("any", "worker", "actor", "server", "replay", "learner", "tracker")
"""Kinds of processes; a worker is a worker, or an actor or learner of its own."""


class Hits(NamedTuple):
    """A process of a kind is killed or frozen again and again."""

    how: str  # of `SIGNALS`
    whom: str  # of `VICTIMS`
    every: float  # seconds, on average

    def __str__(self) -> str:
        return f"{self.how}={self.whom}:{self.every:g}s"


@dataclass(frozen=True)
class Faults:
    """What goes wrong. Seconds and bytes; 0 is nothing."""

    compute: float = 0.0
    """Every learner sleeps so long instead of computing a gradient; pulls and pushes are real."""
    straggler: float = 0.0
    """Learner 0 sleeps so long for every gradient (instead of ``compute``, if that is given)."""
    delay: int = 0
    """Actors play with parameters so many versions older (deterministic runs)."""
    link: float = 0.0
    """Bytes per second through the link of each parameter server, both ways together."""
    hits: tuple[Hits, ...] = ()
    """Processes that are killed (SIGKILL) or frozen (SIGSTOP), at times drawn from the seed."""

    def __str__(self) -> str:
        parts = {
            "compute": f"{1000 * self.compute:g}ms" if self.compute else "",
            "straggler": f"{1000 * self.straggler:g}ms" if self.straggler else "",
            "delay": f"{self.delay}" if self.delay else "",
            "link": f"{self.link / 1e6:g}MB" if self.link else "",
        }
        words = [f"{name}={value}" for name, value in parts.items() if value]
        return ",".join([*words, *map(str, self.hits)])


NONE = Faults()

UNITS = {
    "compute": {"ms": 1e-3, "s": 1.0},
    "straggler": {"ms": 1e-3, "s": 1.0},
    "delay": {"": 1.0},
    "link": {"kB": 1e3, "MB": 1e6, "GB": 1e9},
}


def parse_faults(text: str) -> Faults:
    """Return what the words after ``--faults`` ask for.

    Raises:
        GeladaError: if a word is no NAME=VALUE, or its name or unit is unknown.
    """
    found: dict[str, float] = {}
    hits: list[Hits] = []
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name in SIGNALS:
            hits.append(_parse_hits(word, name, value))
            continue
        if name not in UNITS:
            known = [*UNITS, *SIGNALS]
            raise GeladaError(f"--faults {word}: {nearest(name, known)}; such as {FORM}")
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", value)
        if match is None or match[2] not in UNITS[name]:
            units = " or ".join(unit or "a plain number" for unit in UNITS[name])
            raise GeladaError(f"--faults {word}: want a number with {units}; such as {FORM}")
        found[name] = float(match[1]) * UNITS[name][match[2]]
    delay = found.pop("delay", 0.0)
    if delay != int(delay):
        raise GeladaError(f"--faults delay={delay:g}: must be a whole number of versions")
    return Faults(delay=int(delay), hits=tuple(hits), **found)


def _parse_hits(word: str, how: str, value: str) -> Hits:
    whom, _, seconds = value.partition(":")
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)s", seconds)
    if whom not in VICTIMS or match is None or not float(match[1]):
        raise GeladaError(
            f"--faults {word}: want {how}=KIND:SECONDSs with a kind of {', '.join(VICTIMS)}; such "
            f"as {how}=worker:30s"
        )
    return Hits(how, whom, float(match[1]))


def check_faults(faults: Faults, experiment: Experiment, processes: bool = False) -> None:
    """Raise GeladaError if a run cannot have this trouble.

    Args:
        faults: what goes wrong.
        experiment: all settings.
        processes: the run has processes that can be hit.
    """
    if faults.hits and not processes:
        raise GeladaError(f"--faults {faults}: threads cannot be killed; add --on ray")
    if replace(faults, hits=()) != NONE and not experiment.shape.workers:
        raise GeladaError(f"--faults {faults}: only workers can have it; such as dba3c-pong")
    if faults.delay and not experiment.deterministic:
        raise GeladaError(f"--faults delay={faults.delay}: add --deterministic, to make it exact")


class FaultSchedule:
    """Says when a process is to be hit: each gap is half to one and a half times the average.

    Args:
        hits: of a `Faults`.
        seed: of the gaps.
        clock: seconds; the first gap begins now.
    """

    def __init__(
        self, hits: Sequence[Hits], seed: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hits, self._clock, self._random = hits, clock, random.Random(seed)
        self._next = [clock() + self._gap(one) for one in hits]

    def due(self) -> list[tuple[str, int]]:
        """Return the kinds to hit now, with the signals."""
        now, due = self._clock(), []
        for i, one in enumerate(self._hits):
            if now >= self._next[i]:
                due.append((one.whom, int(SIGNALS[one.how])))
                self._next[i] = now + self._gap(one)
        return due

    def _gap(self, one: Hits) -> float:
        return one.every * self._random.uniform(0.5, 1.5)


class Straggler:
    """Sleeps before each batch, then computes its gradients.

    Args:
        seconds: to sleep.
        compute: what computes.
    """

    def __init__(self, seconds: float, compute: Compute) -> None:
        self._seconds, self._compute = seconds, compute

    def run(self, batch: Batch, client: ParameterClient, aux: Aux) -> Learned:
        """Sleep, then compute."""
        time.sleep(self._seconds)
        return self._compute.run(batch, client, aux)


class Sleeper:
    """Sleeps instead of computing: its gradients are 0, its pushes are real.

    Args:
        seconds: to sleep for each batch.
        algorithm: tells the learning rate that is sent along.
    """

    def __init__(self, seconds: float, algorithm: Algorithm) -> None:
        self._seconds, self._algorithm = seconds, algorithm

    def run(self, batch: Batch, client: ParameterClient, aux: Aux) -> Learned:
        """Sleep, then offer a gradient of 0."""
        time.sleep(self._seconds)
        rate = self._algorithm.learning_rate(aux)
        client.offer(part=0, parts=1, samples=batch.actions.numel(), loss=0.0, rate=rate)
        return Learned({}, None)


class NoExperience:
    """Hands out empty batches that count as ``datapoints`` steps each; a replay for `Sleeper`.

    Args:
        datapoints: steps of a batch.
        cache: of the worker, whose newest version the batches seem to be played with.
    """

    depth = 0

    def __init__(self, datapoints: int, cache: PublishedParameters) -> None:
        self._datapoints, self._cache = datapoints, cache

    def sample(self) -> Batch:
        """Return a batch without waiting."""
        nothing = {name: torch.zeros(1) for name in Batch._fields}
        steps = torch.zeros(1, self._datapoints)
        version = torch.tensor([self._cache.newest.version.number])
        fresh = torch.tensor(self._datapoints)
        return Batch(**nothing | {"actions": steps, "versions": version, "fresh": fresh})

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Do nothing: there are no windows."""


class Link:
    """A parameter server behind a link that carries so many bytes a second; passive."""

    def __init__(self, server: ParameterServer, bytes_per_second: float) -> None:
        self._server, self._rate = server, bytes_per_second
        self._busy = threading.Lock()

    def push(self, gradient: Gradient) -> Answer:
        """Carry a gradient, then push it."""
        self._carry(gradient.values.nbytes)
        return self._server.push(gradient)

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Pull, then carry the parameters."""
        params = self._server.pull(at_least, exactly)
        self._carry(params.values.nbytes)
        return params

    def pull_target(self) -> Params:
        """Pull the target slice, then carry it."""
        target = self._server.pull_target()
        self._carry(target.values.nbytes)
        return target

    def state(self) -> tuple[Params, OptimizerState]:
        """As the server's; whoever watches over the run is not slowed down."""
        return self._server.state()

    def kept(self) -> tuple[Params, OptimizerState] | None:
        """As the server's."""
        return self._server.kept()

    def counts(self) -> Counts:
        """As the server's."""
        return self._server.counts()

    def close(self) -> None:
        """Nobody waits here longer than the link is busy."""

    def _carry(self, size: int) -> None:
        with self._busy:  # one after the other
            time.sleep(size / self._rate)
