"""Faults on purpose: ``python -m benchmarks.lib.faults train dba3c-pong --faults straggler=500ms``.

The program is ``colobus`` with one flag more. The package knows nothing of faults: they change the
graph of a run from outside, and on Ray they are a runtime whose processes get signals.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from colobus.cli.main import run
from colobus.core.errors import ColobusError, nearest
from colobus.core.types import AlgorithmState, Batch
from colobus.experiment.settings import Experiment
from colobus.roles.backprop import Backprop, Learned, Send
from colobus.roles.parameters.client import ParameterClient
from colobus.roles.parameters.published import PublishedParameters
from colobus.roles.replay.api import ReplayReader
from colobus.roles.replay.minibatch_buffer import Use
from colobus.runtime.graph import Handle, Node, Part, RoleGraph, part
from colobus.runtime.groups import Cluster, ProcessSpec
from colobus.training.run import Result, train
from colobus.training.topology import make_graph

FORM = "compute=50ms,straggler=500ms,delay=4,load=20ms,kill=worker:30s,stop=server:45s"

SIGNALS = {"kill": "SIGKILL", "stop": "SIGSTOP"}

VICTIMS = ("any", "worker", "actor", "server", "replay", "learner", "tracker")
"""Kinds of processes. ``worker`` also covers actors and learners outside of a worker."""

UNITS = {
    "compute": {"ms": 1e-3, "s": 1.0},
    "straggler": {"ms": 1e-3, "s": 1.0},
    "delay": {"": 1.0},
    "load": {"ms": 1e-3, "s": 1.0},
    "kill": {"s": 1.0},
    "stop": {"s": 1.0},
}

VALUE = re.compile(r"(?:(\w+):)?([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)")
"""Of a fault: the kind of processes that get a signal, a number, its unit."""

MOST = 1e12
"""No fault lasts as many seconds."""


class Hits(NamedTuple):
    """Signals that kill or freeze a process of a kind at random intervals."""

    how: str  # of `SIGNALS`
    whom: str  # of `VICTIMS`
    every: float  # seconds, on average


@dataclass(frozen=True)
class Faults:
    """The faults of a run, in seconds. 0: no such fault."""

    compute: float = 0.0
    """Seconds that a learner sleeps instead of computing a gradient. Pulls and pushes are real."""
    straggler: float = 0.0
    """Seconds that learner 0 sleeps before it computes a gradient (instead of ``compute``, if that
    is given)."""
    delay: int = 0
    """Number of versions by which the actors' parameters are older (deterministic runs)."""
    load: float = 0.0
    """Seconds that a batch takes to get to a learner, or with ``--loaders`` to a loader."""
    hits: tuple[Hits, ...] = ()
    """Signals to processes (SIGKILL or SIGSTOP), at times drawn from the seed."""

    @property
    def in_roles(self) -> bool:
        """Whether there are others than signals."""
        return replace(self, hits=()) != Faults()


def parse_faults(text: str) -> Faults:
    """Return the faults that the text after ``--faults`` asks for.

    Raises:
        ColobusError: if a part is not NAME=VALUE, or its name, number or unit is unknown.
    """
    found: dict[str, float] = {}
    hits: list[Hits] = []
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in UNITS:
            raise ColobusError(f"--faults {word}: {nearest(name, list(UNITS))}; such as {FORM}")
        match = VALUE.fullmatch(value)
        whom, number, unit = match.groups("") if match else ("", "", "no number")
        kinds = VICTIMS if name in SIGNALS else ("",)
        if whom not in kinds or unit not in UNITS[name]:
            raise ColobusError(f"--faults {word}: want such as {FORM}; kinds: {', '.join(VICTIMS)}")
        size = float(number) * UNITS[name][unit]
        if not 0 < size < MOST:
            raise ColobusError(f"--faults {word[:60]}: must be above 0 and below {MOST:g}")
        if name in SIGNALS:
            hits.append(Hits(name, whom, size))
        else:
            found[name] = size
    delay = found.pop("delay", 0.0)
    if delay != int(delay):
        raise ColobusError(f"--faults delay={delay:g}: must be a whole number of versions")
    return Faults(delay=int(delay), hits=tuple(hits), **found)


def check_faults(faults: Faults, experiment: Experiment, processes: bool = False) -> None:
    """Raise ColobusError if a run, whose roles may be processes, cannot have these faults."""
    if faults.hits and not processes:
        raise ColobusError("--faults: threads cannot be killed; add --on ray")
    if replace(faults, load=0.0).in_roles and not experiment.shape.workers:
        raise ColobusError("--faults: needs a run with workers; such as dba3c-pong")
    if faults.delay and not experiment.deterministic:
        raise ColobusError(f"--faults delay={faults.delay}: add --deterministic, to make it exact")


class FaultSchedule:
    """The times of signals. Each interval is 0.5 to 1.5 times the average, drawn uniformly.

    Args:
        hits: the signals of a `Faults`.
        seed: seed of the intervals.
        clock: returns seconds; the first interval begins now.
    """

    def __init__(
        self, hits: Sequence[Hits], seed: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hits, self._clock, self._random = hits, clock, random.Random(seed)
        self._next = [clock() + self._gap(one) for one in hits]

    def due(self) -> list[tuple[str, int]]:
        """Return the kinds of processes to signal now, each with its signal."""
        now, due = self._clock(), []
        for i, one in enumerate(self._hits):
            if now >= self._next[i]:
                due.append((one.whom, int(signal.Signals[SIGNALS[one.how]])))
                self._next[i] = now + self._gap(one)
        return due

    def _gap(self, one: Hits) -> float:
        return one.every * self._random.uniform(0.5, 1.5)


@dataclass(frozen=True)
class FaultyGraph:
    """Makes the graph of a run with some faults; takes the arguments of `make_graph`."""

    faults: Faults

    def __call__(self, experiment: Experiment, *args: Any, **kwargs: Any) -> RoleGraph:
        """Return the graph."""
        shape, faults = experiment.shape, self.faults
        late = replace(experiment, shape=replace(shape, ahead=shape.ahead + faults.delay))
        nodes = list[Node]()
        reader = "prefetch" if shape.loaders else "learner"  # the role that waits for a batch
        for node in make_graph(late, *args, **kwargs).nodes:
            if faults.load and reader in (node.name, node.kind):
                node = self._loading(node)
            if node.kind == "learner":
                node = self._slow(node, shape.datapoints)
            if not (faults.compute and node.kind == "actor"):
                nodes.append(node)
        return RoleGraph(nodes)

    def _loading(self, node: Node) -> Node:
        """Return a learner, or a queue that loaders fill, whose batches take their time."""
        if node.kind == "learner":
            slow = part(Loading, node.kwargs["replay"], self.faults.load)
            return replace(node, kwargs=node.kwargs | {"replay": slow})
        replay, *rest = node.args
        return replace(node, args=(part(Loading, replay, self.faults.load), *rest))

    def _slow(self, node: Node, datapoints: int) -> Node:
        """Return a learner that sleeps."""
        faults, index, changed = self.faults, node.args[0], dict(node.kwargs)
        slow = faults.straggler if index == 0 else 0.0
        if faults.compute:
            changed["compute"] = Sleeper(slow or faults.compute)
            changed["replay"] = Part(NoExperience, (datapoints, Handle(f"cache-{index}")), {})
        elif slow:
            changed["compute"] = Sleeper(slow, changed["compute"])
        return replace(node, kwargs=changed)


def is_a(spec: ProcessSpec, kind: str) -> bool:
    """Return whether a process is of one of `VICTIMS`.

    Besides its own kind, a worker is a ``learner`` if it has one, and else an ``actor``. A queue is
    a ``replay``, too.
    """
    if kind == "actor":
        return spec.kind == "worker" and not spec.learns
    if kind == "replay":
        return spec.kind in ("replay", "queue")
    return kind in ("any", spec.kind) or (kind == "learner" and spec.learns)


@contextmanager
def struck(hits: Sequence[Hits], seed: int, cluster: Cluster) -> Iterator[None]:
    """Have processes get signals while a run on Ray waits for them."""
    from colobus.runtime import ray

    ray.prepare(cluster.address)  # before anything imports Ray
    from colobus.runtime.ray import runtime

    def signal_itself(_process: Any, number: int) -> None:
        os.kill(os.getpid(), number)

    class StruckRay(runtime.Ray):
        """A Ray runtime that sends signals as they are due."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._due, self._chance = FaultSchedule(hits, seed), random.Random(seed)

        def check(self) -> None:
            """Check, then send what is due, each to a process of its kind chosen by chance."""
            super().check()
            for kind, number in self._due.due():
                there = [one for one in self.processes.all if one.running and is_a(one.spec, kind)]
                if there:
                    process = self._chance.choice(there)
                    name = signal.Signals(number).name
                    self.log(f"faults: {name} to {process}")
                    self.tell_of("hit", process, signal=name)
                    within = process.handle.__ray_call__.options(concurrency_group="watch")
                    within.remote(signal_itself, number)

    with patch.object(runtime, "Ray", StruckRay):
        yield


def train_with(faults: Faults, experiment: Experiment, *args: Any, **rest: Any) -> Result:
    """Train as `train` does for the command line, with faults."""
    on_ray = rest.get("on") == "ray"
    check_faults(faults, experiment, processes=on_ray)
    if faults.in_roles:
        rest["make"] = FaultyGraph(faults)
    with struck(faults.hits, experiment.seed, rest["cluster"]) if on_ray else nullcontext():
        return train(experiment, *args, **rest)


def main(words: Sequence[str]) -> int:
    """Run ``colobus WORDS``, where ``--faults`` is known too; return its exit code."""
    try:
        text, rest = taken("--faults", words, FORM)
        faults = parse_faults(text)
        if text and rest[:1] not in (["train"], ["suite"]):
            raise ColobusError(f"--faults {text}: has an effect only in train and suite")
    except ColobusError as error:
        sys.stderr.write(f"colobus: {error}\n")
        return error.exit_code
    faulty = partial(train_with, faults)
    # the second one for suites and --seeds, which import it when they begin
    with patch("colobus.cli.train.train", faulty), patch("colobus.training.run.train", faulty):
        return run(rest)


def taken(flag: str, words: Sequence[str], form: str) -> tuple[str, list[str]]:
    """Return the value of a flag ("" if it is not given), and the words without both.

    Raises:
        ColobusError: if the flag has an empty value or none, as from a variable that is not set: a
            run without it would be another one.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(flag, dest="value")
    try:
        found, rest = parser.parse_known_args(words)
    except ArgumentError:
        found, rest = Namespace(value=""), []
    if found.value == "":
        raise ColobusError(f"{flag} is empty; give it a value, such as {form}")
    return found.value or "", rest


class Sleeper:
    """Sleeps, then computes gradients. Without ``compute`` they are 0, and it really pushes them.

    Args:
        seconds: time to sleep for each round.
        compute: computes the gradients.
    """

    def __init__(self, seconds: float, compute: Backprop | None = None) -> None:
        self._seconds, self._compute = seconds, compute

    def run(
        self,
        uses: Sequence[Use],
        client: ParameterClient,
        algorithm_state: AlgorithmState,
        send: Send,
    ) -> Learned:
        """Sleep, then push the gradients."""
        time.sleep(self._seconds)
        if self._compute:
            return self._compute.run(uses, client, algorithm_state, send)
        send(0, 1, uses[-1].batch.actions.numel())
        return Learned({}, None)


class NoExperience:
    """A replay for `Sleeper`: its batches are empty and count as ``datapoints`` steps each.

    Args:
        datapoints: steps of a batch.
        cache: the worker's parameters; the batches have its newest version.
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
        old = torch.zeros(1, dtype=torch.bool)
        given = {"actions": steps, "versions": version, "replayed": old, "fresh": fresh}
        return Batch(**nothing | given)

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Do nothing: there are no windows."""


class Loading:
    """A replay whose batches take their time, as copies to a slow device do."""

    def __init__(self, replay: ReplayReader, seconds: float) -> None:
        self._replay, self._seconds = replay, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replay, name)

    def sample(self) -> Batch:
        """Return a batch, that much later."""
        batch = self._replay.sample()
        time.sleep(self._seconds)
        return batch


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))  # what is defined in this module travels to Ray's processes
