"""``colobus plan``: how fast a run would be on a cluster, what bounds it, what would help.

Real servers, queues and learners run in simulated time on as many hosts as one likes. Nothing is
played and nothing learned: what that takes was measured by ``colobus bench --costs``. Beside the
simulation stand bounds in closed form, of which the lowest says what the run waits for.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch

from colobus.cli.display import Printer, on_terminal
from colobus.cli.experiment_flags import ExperimentFlags, resolve
from colobus.cli.flags import print_json, value_of, without
from colobus.cli.show import imagined_start
from colobus.cli.throughput import Progress, measured
from colobus.core.errors import ColobusError, Stalled
from colobus.core.fields import Range
from colobus.core.fields import check as check_fields
from colobus.core.timing import Clock, passing
from colobus.core.types import AlgorithmState, Batch, Trajectory, Update, Version
from colobus.envs.make import agents, frame_shape, frame_type
from colobus.experiment.autoscale import CHOSEN
from colobus.experiment.check import check
from colobus.experiment.settings import Experiment, Shape, flag
from colobus.experiment.shape import MOST
from colobus.nets.network import Network
from colobus.report.format import Table
from colobus.roles.actor import Actor, ActorSettings
from colobus.roles.backprop import Learned, Send
from colobus.roles.learner import Learner
from colobus.roles.parameters.client import ParameterClient
from colobus.roles.parameters.published import Source, pull_newest
from colobus.roles.replay.api import ReplayWriter
from colobus.roles.replay.minibatch_buffer import Use
from colobus.roles.tracker import StopRule, Tracker
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Hosts
from colobus.runtime.virtual import Draw, World
from colobus.training.on_virtual import (
    BY_GAMES,
    PER_PARAMETER,
    Costs,
    bytes_a_second,
    parameters_of,
    read_costs,
    simulated,
)
from colobus.training.topology import make_graph

VERSIONS = 30
"""Rounds of all learners that are simulated."""

SETTLED = 0.3
"""Share of the simulated time that is not counted, while queues fill."""

NOTHING = 1e-12
"""Seconds of work that is free."""

ROLLOUT = "play a rollout"
"""The stage of an actor that plays nothing."""


@dataclass(frozen=True)
class Plan(ExperimentFlags):
    """Say how fast a run would be on a cluster, before there is one."""

    nodes: Annotated[int, Range(1, 100_000)] = 1
    """Hosts, among which workers and servers are spread; without --workers, so many workers."""
    link: str = "10Gb"
    """Of a host, in each direction: bits a second, such as 10Gb, or bytes, such as 20MB."""
    costs: str = ""
    """File that colobus bench --costs has written on a machine like those of the cluster, or what
    stages take, such as learn=50ms,emulate=1ms."""
    changes: bool = True
    """Also simulate changes that cost nothing: more servers, larger batches, backups."""
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


class Speed(NamedTuple):
    """What a simulation has found."""

    versions: float  # a second
    steps: float  # a second: environment steps, also of gradients that were dropped
    learned: float  # steps a second whose gradients counted
    lag: tuple[float, float]  # in versions: the median, and what 95 % are below
    dropped: float  # share of the gradients
    busy: dict[str, float]  # share of its time that the first learner was in each stage


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    cores, workers = value_of("--cores", args), value_of("--workers", args)
    if cores and not (cores.isdecimal() and len(cores) < 5 and int(cores)):
        raise ColobusError(f"--cores {cores[:40]}: must be a whole number from 1 to 9999")
    quorum = "" if workers else value_of("--quorum", args)  # of workers that are not told yet
    words = without(args, ["--cores"] * bool(cores) + ["--quorum"] * bool(quorum))
    wanted = resolve(Plan, "plan", words)
    shape, nodes = wanted.experiment.shape, wanted.flags.nodes
    told = shape.learners or any(vars(shape)[n] != vars(wanted.base.shape)[n] for n in CHOSEN)
    if shape.workers or not told:
        words += ["--cores", cores] if cores else []
    if shape.workers and not workers:
        if nodes > MOST:
            raise ColobusError(f"--nodes {nodes}: must be at most {MOST:,} without --workers")
        words += ["--workers", str(nodes)]
        quorum = quorum or str(shape.quorum if shape.quorum <= nodes else 0)
    wanted = resolve(Plan, "plan", [*words, *([f"--quorum={quorum}"] if quorum else [])])
    flags, experiment = wanted.flags, wanted.experiment
    several = agents(experiment.games) > 1
    if experiment.replay.capacity or shape.topology.replicas > 1 or several:
        raise ColobusError(
            "colobus plan: knows runs whose learners take each trajectory once, such as "
            "dba3c-pong; not replay buffers, --reduce group and games of several agents"
        )
    bytes_a_second(flags.link)
    costs = read_costs(flags.costs, experiment, wanted.name)
    hosts = Hosts(hosts=flags.nodes, host_cores=float(cores or 0), link=flags.link)
    check_fields(hosts, flag)
    printer = Printer(to_stderr=flags.json)
    try:
        with printer.progress("simulating", "%") as bar:
            found = plan(experiment, costs, hosts, flags.changes, lambda one: bar(100 * one, 100.0))
    except Stalled as error:
        given = f"--link {flags.link} with --costs {flags.costs}"
        raise ColobusError(f"{given}: {error}; take a faster link or lower costs") from None
    if flags.json:
        print_json(found)
    else:
        show(printer, wanted.name, found)
    return 0


def plan(
    experiment: Experiment,
    costs: Costs,
    hosts: Hosts,
    changes: bool = True,
    tell: Progress = lambda _share: None,
) -> dict[str, Any]:
    """Return speeds, bounds and changes of a run on hosts.

    Each repetition of the measured costs gives a simulation of its own; the numbers are their
    medians, beside the least and the largest. A change is simulated with the costs of all.
    """
    tries = tried(experiment) if changes else {}
    bounds = bounds_of(experiment, costs, hosts)  # refuses what takes no time
    total, done = costs.repetitions + (1 + len(tries) if tries else 0), 0
    speeds = []
    for repetition in range(costs.repetitions):
        speeds.append(simulate(experiment, costs, hosts, repetition))
        tell((done := done + 1) / total)
    gains = {}
    if tries:
        base = simulate(experiment, costs, hosts).learned
        for what, changed in tries.items():
            tell((done := done + 1) / total)
            gains[what] = round(simulate(changed, costs, hosts).learned / max(base, 1e-9) - 1, 3)
    return {
        "hosts": hosts.hosts,
        **({"cores": hosts.host_cores} if hosts.host_cores else {}),
        "link": hosts.link,
        "workers": experiment.shape.workers,
        "servers": experiment.shape.servers,
        **{
            name: spread_of([getattr(speed, name) for speed in speeds])
            for name in ("versions", "steps", "learned", "dropped")
        },
        "lag": spread_of([speed.lag[0] for speed in speeds]),
        "lag_95": spread_of([speed.lag[1] for speed in speeds]),
        "learner": {name: round(share, 3) for name, share in speeds[0].busy.items()},
        "bounds": {name: round(rate, 1) for name, rate in bounds.items()},
        "bound_by": min(bounds, key=lambda name: bounds[name]),
        "changes": gains,
        "machine": costs.machine,
    }


def spread_of(values: Sequence[float]) -> list[float]:
    """Return the median, the least and the largest."""
    return [round(float(value), 4) for value in (np.median(values), min(values), max(values))]


def tried(experiment: Experiment) -> dict[str, Experiment]:
    """Return changes of settings that need no more hosts, as flags."""
    shape, batch, found = experiment.shape, 2 * experiment.shape.batch, dict[str, Experiment]()
    ideas: dict[str, Shape] = {
        f"--servers {2 * shape.servers}": replace(shape, servers=2 * shape.servers),
        f"--games {2 * shape.games}": replace(shape, games=2 * shape.games, batch=batch),
        f"--length {2 * shape.length}": replace(shape, length=2 * shape.length, batch=batch),
    }
    if shape.workers > 1 and not shape.asynchronous:
        quorum = max(shape.workers - max(shape.workers // 16, 1), 1)
        if quorum < shape.topology.gradients:
            ideas[f"--quorum {quorum}"] = replace(shape, quorum=quorum)
    for what, changed in ideas.items():
        candidate = replace(experiment, shape=changed)
        with suppress(ColobusError):  # it is no run
            check(candidate)
            make_graph(candidate, imagined_start(candidate), None)
            found[what] = candidate
    return found


def bounds_of(experiment: Experiment, costs: Costs, hosts: Hosts) -> dict[str, float]:
    """Return what each part alone would allow, in steps a second of the whole run."""
    shape, learners, calls = experiment.shape, experiment.shape.topology.learners, costs.of_calls()
    nodes, link = hosts.hosts or learners, bytes_a_second(hosts.link)

    def mean(stage: str) -> float:
        return costs.mean(stage, shape.games if stage in BY_GAMES else shape.datapoints)

    # an actor enters the stage "act" twice a step and once
    playing = shape.length * mean("emulate") + (2 * shape.length + 1) * mean("act")
    around = mean("wait for parameters") + mean("between stages")  # in rollouts and rounds
    play = playing + around + mean("wait for room") + mean("load parameters")  # a rollout
    play *= shape.datapoints / (shape.games * shape.length)
    learn = around + sum(map(mean, ("learn", "report", "wait for experience", "push")))
    for stage, spent in (("emulate", playing), ("learn", mean("learn"))):
        if not spent:
            raise ColobusError(f"--costs: say what {stage} takes, too: add {stage}=1ms or the like")
    parameters = parameters_of(make_graph(experiment, imagined_start(experiment), None))
    step, more = (  # seconds of a parameter; said by hand they are those of all of a server's
        float(np.mean([one[s] for one in costs.servers] or mean(s) * shape.servers / parameters))
        for s in PER_PARAMETER
    )
    if not shape.topology.remote_servers:  # which step in the learner's process
        minibatches = -(-shape.datapoints // experiment.algorithm.minibatch)
        learn += parameters * step * experiment.algorithm.epochs * minibatches
    found = {"play": shape.topology.players / play}
    if hosts.host_cores:
        found["cores"] = nodes * hosts.host_cores / (play + learn)
    if shape.topology.remote_servers:
        alone = shape.asynchronous  # each gradient makes a version; else late ones cost nothing
        gradients, batches = (1, 1) if alone else (shape.topology.gradients, learners)
        version = step + (gradients - 1) * more
        slice_ = 4.0 * parameters / shape.servers  # bytes
        # by host, as `placed` does; what stays on one crosses no link
        workers = Counter(index % nodes for index in range(learners))
        servers = Counter(1 % nodes + index % max(nodes - 1, 1) for index in range(shape.servers))
        far = {host: shape.servers - servers[host] for host in workers}
        crossing = min(far.values()) + min(*far.values(), 1)  # the first answers meanwhile
        learn += 2 * calls.latency + calls.cpu + max(calls.cpu, calls.loop)
        learn += 4 * calls.packing(slice_) + crossing * slice_ / link
        wire = learners * link / slice_
        busy = max(count * (learners - workers[host]) for host, count in servers.items())
        found |= {
            "workers' links": wire / max(*(n * far[host] for host, n in workers.items()), NOTHING),
            "servers' links": wire / max(busy, NOTHING),
            "servers' steps": batches / max(slice_ / 4.0 * version, NOTHING),
            "servers' calls": 1.0 / max(calls.loop + calls.packing(slice_), NOTHING),
        }
    else:  # trajectories of actors on other hosts than the learner's
        pixels = math.prod(frame_shape(experiment.games)) * frame_type(experiment.games).itemsize
        step_bytes = pixels * (shape.length + experiment.network.stack) / shape.length
        away = 1 - -(-shape.actors // nodes) / shape.actors
        found["the learner's link"] = link / max(away * step_bytes * shape.datapoints, NOTHING)
    found["learners' rounds"] = learners / learn
    return {name: rate * shape.datapoints for name, rate in found.items()}


def simulate(
    experiment: Experiment, costs: Costs, hosts: Hosts, repetition: int | None = None
) -> Speed:
    """Return how fast a run would be on hosts, with the costs of one repetition or of all."""
    shape, learners = experiment.shape, experiment.shape.topology.learners
    stop = StopRule(steps=VERSIONS * learners * shape.datapoints)
    planned = measured(replace(experiment, deterministic=False), stop, random_steps=0)
    drawn: list[Draw] = []
    world = World(lambda *what: drawn[0](*what), costs.of_calls(repetition), experiment.seed)
    with passing(world):
        real = make_graph(planned, imagined_start(planned), None, 0.0, spread=True)
        graph = stubbed(real, costs.endings(shape.games), frame_type(experiment.games))
        drawn.append(in_rollouts(costs.draw(planned, parameters_of(graph), repetition), shape))
        runtime = simulated(graph, world, hosts)
        runtime.start()
        while not runtime.wait(60.0):
            runtime.check()
        runtime.check()
        runtime.stop()
    told: list[tuple[float, Update]] = runtime.roles["tracker"].told
    own = [(moment, update.version.number) for moment, update in told if update.learner == 0]
    settled = [each for each in own if each[0] >= SETTLED * own[-1][0]]
    (begin, first), (end, last) = settled[0], settled[-1]  # so these are whole rounds of all
    counted = [update for moment, update in told if begin < moment <= end] or [told[-1][1]]
    seconds = max(end - begin, 1e-9)
    lags = [update.lag[1] for update in counted]
    newest = {update.learner: update.traffic for _, update in told if update.traffic is not None}
    traffic = newest.values()  # each counts from the start
    sent = sum(one.counted + one.partial + one.dropped for one in traffic)
    dropped = sum(one.dropped for one in traffic) / max(sent, 1)
    steps = sum(update.steps for update in counted) / seconds
    spent = runtime.roles["learner-0"].clock.seconds
    return Speed(
        (last - first) / seconds,
        steps,
        steps * (1.0 - dropped),
        (float(np.median(lags)), float(np.quantile(lags, 0.95))),
        dropped,
        {stage: value / (sum(spent.values()) or 1.0) for stage, value in spent.items()},
    )


def in_rollouts(draw: Draw, shape: Shape) -> Draw:
    """Return costs with the stage `ROLLOUT`, which is made of all stages of a rollout.

    If a batch has the rollouts of some actors only, the first of each is shorter by chance: actors
    of a long run are not in step.
    """
    played_at_once = shape.topology.players * shape.games * shape.length
    in_step = played_at_once <= shape.topology.learners * shape.datapoints
    begun = set[str]()

    def drawn(role: str, stage: str, chance: random.Random) -> float:
        if stage != ROLLOUT:
            return draw(role, stage, chance)
        played = sum(draw(role, "emulate", chance) for _ in range(shape.length))
        played += sum(draw(role, "act", chance) for _ in range(2 * shape.length + 1))
        if in_step or role in begun:
            return played
        begun.add(role)
        return chance.random() * played

    return drawn


def stubbed(graph: RoleGraph, endings: float, pixels: np.dtype[Any]) -> RoleGraph:
    """Return a graph whose actors play nothing and whose learners push gradients of 0.

    A game ends in a share ``endings`` of the rollouts; ``pixels`` is the type of frames.
    """
    nodes = []
    for node in graph.nodes:
        if node.make is Actor:
            args = (node.args[0], *node.args[4:7], endings, node.args[2].args[0], pixels)
            node = replace(node, make=PlannedActor, args=args, kwargs={})
        elif node.make is Learner:
            minibatch = node.args[1].minibatch
            stubs = {"compute": NoBackprop(minibatch), "schedule": NoSchedule()}
            node = replace(node, kwargs=node.kwargs | stubs)
        elif node.make is Tracker:
            node = replace(node, make=Listener)
        nodes.append(node)
    return replace(graph, nodes=nodes)


class Listener(Tracker):
    """A tracker that keeps what it was told, and when."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told: list[tuple[float, Update]] = []

    def report(self, update: Update) -> tuple[bool, int]:
        """See `Tracker`."""
        self.told.append((self.seconds(), update))
        return super().report(update)


class PlannedActor:
    """An actor that plays nothing: its trajectories are black, as long and as large as real ones.

    The tracker is told of finished episodes, of which there are none here, after a share
    ``endings`` of the rollouts.
    """

    def __init__(
        self,
        settings: ActorSettings,
        sources: Sequence[Source],
        replay: ReplayWriter,
        tracker: Tracker,
        endings: float,
        net: Network,
        pixels: np.dtype[Any],
    ) -> None:
        self.name, self.clock, self.finished = f"actor-{settings.index}", Clock(), False
        self._settings, self._sources, self._replay = settings, sources, replay
        self._tracker, self._endings, self._round, self._told = tracker, endings, 0, 0
        shape = (settings.games, settings.length + net.stack, *net.mean.shape)
        self._frames = np.zeros(shape, pixels)

    def step(self) -> None:
        """Wait for room and for parameters, and send a trajectory."""
        with self.clock("wait for room"):
            self._replay.wait_for_room(self._settings.index)
        with self.clock("wait for parameters"):
            version = pull_newest(self._sources).version
        with self.clock("load parameters"):
            pass
        with self.clock(ROLLOUT):
            trajectory = self._empty(version)
        self._round += 1
        if self._round * self._endings >= self._told + 1:
            self._told += 1
            self._tracker.episodes(())
        self._replay.add(trajectory)
        self.clock.steps += 1

    def _empty(self, version: Version) -> Trajectory:
        games, length = self._settings.games, self._settings.length
        no, nothing = np.zeros((games, length), dtype=np.bool_), np.zeros((games, length))
        return Trajectory(
            actor=self._settings.index,
            round=self._round,
            version=version,
            frames=self._frames,
            ages=np.zeros((games, length + 1), dtype=np.int64),
            actions=np.zeros((games, length), dtype=np.int64),
            rewards=nothing.astype(np.float32),
            terminated=no,
            truncated=no,
            mask=no,
            log_probs=nothing.astype(np.float32),
            independent=no[:, 0],
            state=np.zeros((games, 0), dtype=np.float32),
        )


class NoBackprop:
    """Pushes gradients of 0, one for each minibatch: versions go on, and parameters stay."""

    def __init__(self, minibatch: int) -> None:
        self._minibatch = minibatch

    def run(
        self, uses: Sequence[Use], client: ParameterClient, _state: AlgorithmState, send: Send
    ) -> Learned:
        """Send the gradients of a round."""
        size = uses[-1].batch.actions.numel()
        parts = sum(use.epochs for use in uses) * -(-size // self._minibatch)
        for part in range(parts):
            send(part, parts, float(size))
        return Learned({}, None)


class NoSchedule:
    """Counts steps; nothing moves."""

    def __init__(self) -> None:
        self.algorithm_state: AlgorithmState = {"learning_rate": torch.tensor(0.0)}
        self.steps = 0

    def begin(self, *_: Any) -> None:
        """Do nothing."""

    hear = before = begin

    def after(self, batch: Batch, values: dict[str, float]) -> None:
        """Count the batch's steps."""
        self.steps += int(batch.fresh)


def show(printer: Printer, name: str, found: dict[str, Any]) -> None:
    """Print a plan as a table and a few lines."""
    cores = f" of {found['cores']:g} cores" if "cores" in found else ""
    title = f"{name} on {found['hosts']} hosts{cores}, links of {found['link']}"
    predicted = (
        ("versions/s", "versions", "{:,.2f}"),
        ("steps/s that count", "learned", "{:,.0f}"),
        ("lag of a batch, median", "lag", "{:.1f}"),
        ("lag of a batch, 95 %", "lag_95", "{:.1f}"),
        ("share of gradients dropped", "dropped", "{:.1%}"),
    )
    rows = [(what, *map(form.format, found[key])) for what, key, form in predicted]
    bounds = sorted(found["bounds"].items(), key=lambda item: item[1])
    rows += [(f"{what} alone would allow, steps/s", f"{rate:,.0f}") for what, rate in bounds]
    columns = ("predicted", "median>", "least>", "largest>")
    printer.table(on_terminal(Table(columns, tuple(rows), title)))
    printer.line(f"bound by: {found['bound_by']}")
    if gains := sorted(found["changes"].items(), key=lambda item: -item[1]):
        said = ", ".join(f"{what} {gain:+.0%}" for what, gain in gains)
        printer.line(f"changes that cost nothing, in steps/s that count: {said}")
    printer.line(
        f"simulated, with costs measured on {found['machine'].get('processor')}; learning is not "
        "simulated: larger batches and backups learn differently"
    )
