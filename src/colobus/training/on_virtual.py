"""A run in simulated time (``--on virtual``), and what its stages cost on a machine.

Costs are a file that ``colobus bench --costs`` has written, or are said by hand. A file has one
point for each repetition and size: quantiles of the seconds of each stage, which lie on a straight
line between and beyond the sizes that were measured.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from colobus.core.errors import ColobusError, nearest, program, quoted
from colobus.core.timing import passing
from colobus.core.types import Doubles
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, algorithm_name
from colobus.roles.parameters.server import ParameterServer
from colobus.roles.tracker import Status
from colobus.runtime.api import Runtime
from colobus.runtime.devices import Devices, Placement
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, Hosts, group_processes
from colobus.runtime.virtual import BETWEEN, Calls, Draw, Host, Virtual, World, placed
from colobus.training.runtimes import Launcher, Log, Plan

BY_GAMES = frozenset({"act", "emulate", "start games", "load parameters"})
"""Stages that take longer for an actor of more games; all others do for a larger batch."""

PER_PARAMETER = ("step", "take a gradient")
"""Stages of a server, whose seconds are those of one parameter."""

STAGES = BY_GAMES.union(PER_PARAMETER, ("wait for room", "wait for parameters", "learn", "load"))
STAGES |= {"wait for experience", "report", "push", BETWEEN}
"""Stages that cost anything."""

LOOKS = 2
"""Of the run's own process at all others, a second."""

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

COST = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)")

LINK = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMG])(b|B|[bB]it)(?:/s)?")


def bytes_a_second(text: str) -> float:
    """Return the speed of a link, such as 10Gb (bits a second) or 20MB (bytes).

    Raises:
        ColobusError: if it is none.
    """
    match = LINK.fullmatch(text)
    if match is None or not 0.0 < float(match[1]) < 1e9:
        raise ColobusError(f"--link {text[:40]}: must be such as 10Gb (bits) or 20MB (bytes)")
    speed = float(match[1]) * {"k": 1e3, "M": 1e6, "G": 1e9}[match[2]]
    return speed if match[3] == "B" else speed / 8


@dataclass(frozen=True)
class Costs:
    """What a machine's stages cost, in seconds."""

    about: dict[str, Any] = field(default_factory=dict)  # what it was measured with
    machine: dict[str, Any] = field(default_factory=dict)
    points: tuple[dict[str, Any], ...] = ()
    """Each has a ``repetition``, ``games`` of an actor, ``datapoints`` of a batch, ``endings``: the
    share of the rollouts in which a game ends, and ``stages``: by name quantiles from the least to
    the largest."""
    servers: tuple[dict[str, float], ...] = ()  # by repetition: seconds a parameter, by stage
    calls: tuple[dict[str, float], ...] = ()  # by repetition: `Calls`

    @property
    def repetitions(self) -> int:
        """How often each was measured."""
        return 1 + max((int(point["repetition"]) for point in self.points), default=0)

    def quantiles(self, stage: str, size: float, repetition: int | None = None) -> Doubles:
        """Return the quantiles of a stage's seconds at a size, of one repetition or of all."""
        by = "games" if stage in BY_GAMES else "datapoints"
        points = [
            (point[by], point["stages"][stage])
            for point in self.points
            if stage in point["stages"] and repetition in (None, point["repetition"])
        ]
        if not points:
            return np.zeros(2)
        x, y = (np.array(values, dtype=float) for values in zip(*points, strict=True))
        if np.ptp(x) == 0:
            return np.asarray(y.mean(axis=0))
        slope, start = np.polyfit(x, y, 1)
        return np.sort(np.clip(start + slope * size, 0.0, None))

    def mean(self, stage: str, size: float, repetition: int | None = None) -> float:
        """Return the mean seconds of a stage at a size."""
        found = self.quantiles(stage, size, repetition)
        return float((found[1:] + found[:-1]).mean() / 2)

    def endings(self, games: int) -> float:
        """Return the share of the rollouts of about so many games in which one of them ends."""
        away = [abs(point["games"] - games) for point in self.points]
        near = [p for p, far in zip(self.points, away, strict=True) if far == min(away)]
        return float(np.mean([point.get("endings", 0.0) for point in near])) if near else 0.0

    def of_calls(self, repetition: int | None = None) -> Calls:
        """Return what calls cost, in one repetition or in the median of all."""
        every = self.calls if repetition is None else self.calls[repetition : repetition + 1]
        known: dict[str, Any] = {  # files of version 0.2.0 have no cpu and no idle
            name: float(np.median([one[name] for one in every])) for name in (every or ({},))[0]
        }
        return Calls(**{"carried": known.get("byte", 0.0)} | known)  # nor what is carried

    def draw(self, experiment: Experiment, parameters: int, repetition: int | None = None) -> Draw:
        """Return what draws the costs of a run whose network has so many parameters."""
        sizes = {True: experiment.shape.games, False: experiment.shape.datapoints}
        stages = {stage for point in self.points for stage in point["stages"]}
        tables = {
            stage: self.quantiles(stage, sizes[stage in BY_GAMES], repetition).tolist()
            for stage in sorted(stages)
        }
        slice_ = parameters / experiment.shape.servers
        servers = self.servers if repetition is None else self.servers[repetition:][:1]
        for stage in PER_PARAMETER if servers else ():
            tables[stage] = [slice_ * float(np.median([one[stage] for one in servers]))] * 2

        def draw(_role: str, stage: str, chance: random.Random) -> float:
            table = tables.get(stage)
            if table is None:
                return 0.0
            at, share = divmod(chance.random() * (len(table) - 1), 1.0)
            low, high = table[int(at)], table[int(at) + 1]
            return float(low + share * (high - low))

        return draw


def said_costs(text: str) -> Costs:
    """Return the costs of stages that are said by hand, such as ``learn=50ms,emulate=1ms``.

    Raises:
        ColobusError: if it says something else.
    """
    found = dict[str, list[float]]()
    for word in text.split(","):
        stage, _, value = word.strip().partition("=")
        match = COST.fullmatch(value)
        if match is None or not stage or not float(match[1]) < 1e9:
            why = "must be a file of colobus bench --costs, or such as learn=50ms,emulate=1ms"
        elif stage not in STAGES:
            why = f"unknown stage; {nearest(stage, STAGES)}"
        elif stage in found:
            why = f"{stage} is given twice; leave one of them out"
        else:
            found[stage] = [float(match[1]) * UNITS[match[2]]] * 2  # least and most
            continue
        raise ColobusError(f"--costs {word[:40]}: {why}")
    point = {"repetition": 0, "games": 1, "datapoints": 1, "stages": found}
    return Costs(machine={"processor": "no machine (said by hand)"}, points=(point,))


def impossible(costs: Costs) -> str:
    """Return what stage, part of calls or repetition cannot be so, or ""."""
    numbers = {point["repetition"] for point in costs.points}
    if numbers != set(range(len(numbers))):
        return "'repetition' must be counted from 0 on"
    each = [point["stages"] or {"stages": []} for point in costs.points] or [{"points": []}]
    each += [{k: [v] * 2 for k, v in one.items()} for one in (*costs.servers, *costs.calls)]
    for name, seconds in (item for one in each for item in one.items()):
        if len(seconds) < 2 or not all(0.0 <= second < math.inf for second in seconds):
            return f"{name!r} must be two or more finite seconds, from 0 on"
    return ""


def measured_with(experiment: Experiment) -> dict[str, Any]:
    """Return what a run must have in common with the one whose costs were measured."""
    parts: tuple[tuple[object, tuple[str, ...]], ...] = (
        (experiment.games, ("size", "colour", "frame_skip")),
        (experiment.shape, ("emulators", "env_processes")),
        (experiment.algorithm, ("epochs", "minibatch")),
        (experiment.reuse, ("replay_proportion",)),
    )
    more = {name: getattr(part, name) for part, names in parts for name in names}
    own = {"game": experiment.games.game, "algorithm": algorithm_name(experiment)}
    return own | asdict(experiment.network) | more


def read_costs(file: str, experiment: Experiment, name: str) -> Costs:
    """Return the costs in a file, if they are of such a game, algorithm and network.

    Args:
        file: written by ``colobus bench --costs``, or what `said_costs` understands.
        experiment: that will be simulated.
        name: of its preset, for the command that measures.

    Raises:
        ColobusError: if there is no such file, or of another run; names the command.
    """
    measure = f"measure it: {program()} bench {name} --costs {quoted(file or 'costs.json')}"
    if "=" in file and not file.endswith(".json"):
        return said_costs(file)
    if not file:
        raise ColobusError(f"--costs: no machine was measured yet; {measure}")
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        costs = Costs(**found | {k: tuple(found[k]) for k in ("points", "servers", "calls")})
        if wrong := impossible(costs):
            raise ColobusError(f"--costs {file}: {wrong}; {measure}")
        _ = {**costs.about, **costs.machine}, costs.draw(experiment, 1), costs.of_calls()
        _ = costs.endings(experiment.shape.games)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no costs of a machine"
        raise ColobusError(f"--costs {file}: {why}; {measure}") from None
    for what, value in json.loads(json.dumps(measured_with(experiment))).items():
        there = costs.about.get(what, value)  # not all of them are in older files
        if there != value or "game" not in costs.about:
            raise ColobusError(
                f"--costs {file}: measured with {what} {costs.about.get(what)}, here it is "
                f"{value}; {measure}"
            )
    return costs


class OnVirtual(Launcher):
    """All roles in simulated processes, which open their games themselves."""

    remote = True

    def __init__(self, cluster: Cluster | Hosts | None = None) -> None:
        self._hosts = cluster if isinstance(cluster, Hosts) else Hosts()
        said = [f"{name} {value}" for name, value in asdict(self._hosts).items() if value]
        self.time = f"simulated, {', '.join(said)}"
        self._costs = Costs()
        self.world: World | None = None

    def check(self, experiment: Experiment, devices: Devices, resumed: bool = False) -> Placement:
        """Return the devices of a run.

        Raises:
            ColobusError: also if the costs or the link are not understood, or learners meet in a
                group, which processes do without a runtime.
        """
        bytes_a_second(self._hosts.link)
        wanted = measured_with(experiment)
        name = f"{wanted['algorithm']}-{wanted['game']}"
        fits = [one for one, own in PRESETS.items() if measured_with(own) == wanted]
        name = max(fits, key=lambda one: PRESETS[one].shape == experiment.shape, default=name)
        self._costs = read_costs(self._hosts.costs, experiment, name)
        size, stop = experiment.shape.datapoints, experiment.stop
        free = not any(self._costs.mean(one, size) for one in ("learn", "act", "emulate"))
        if stop.minutes and not stop.steps and free:  # simulated minutes, which never pass
            raise ColobusError(
                f"--minutes {stop.minutes:g} with --costs {self._hosts.costs}: no time passes if "
                "neither learning nor playing takes any; add learn=1ms, or give --steps"
            )
        if experiment.shape.topology.replicas > 1:
            raise ColobusError("--reduce group with --on virtual: not simulated; leave one out")
        return super().check(experiment, devices, resumed)

    def prepare(self, experiment: Experiment, placement: Placement, log: Log) -> None:
        """Set up this process for a run."""
        super().prepare(experiment, placement, lambda _: None)

    def join(self, experiment: Experiment, stack: ExitStack, log: Log) -> None:
        """Have simulated time pass until the stack is left."""
        self._draws: list[Draw] = []
        calls = self._costs.of_calls()
        self.world = World(lambda *what: self._draws[0](*what), calls, experiment.seed)
        stack.enter_context(passing(self.world))

    def launch(self, plan: Plan, status: Callable[[], Status]) -> tuple[RoleGraph, Runtime]:
        """Return the graph of the roles on simulated hosts."""
        assert self.world is not None
        experiment, began = plan.experiment, self.world.now()
        graph = plan.graph(began=began, spread=True)
        self._draws = [self._costs.draw(experiment, parameters_of(graph))]
        events, deadline = plan.events(began), experiment.shape.deadline
        return graph, simulated(graph, self.world, self._hosts, deadline, plan.log, events)


def simulated(graph: RoleGraph, world: World, hosts: Hosts, *how: Any) -> Virtual:
    """Return the runtime of a graph on simulated hosts; ``how`` is what `Virtual` takes besides."""
    specs = group_processes(graph, per_process=1)
    count = hosts.hosts or max(sum(spec.kind == "worker" for spec in specs), 1)
    link = bytes_a_second(hosts.link)
    there = [Host(hosts.host_cores or math.inf, link) for _ in range(count)]
    places = placed(graph, specs, there)
    for host in there:
        idle = 0.0
        for spec in (spec for spec, own in places if own is host):
            # the run's own process asks each for a heartbeat, and the tracker three times more
            asked = LOOKS * (4 if "tracker" in spec.roles else 1)
            idle += world.calls.idle + asked * world.calls.cpu
        host.cores = max(host.cores - idle, host.cores / 10)
    return Virtual(graph, world, places, *how)


def parameters_of(graph: RoleGraph) -> int:
    """Return the parameters of all servers of a graph."""
    return sum(node.args[0].numel() for node in graph.nodes if node.make is ParameterServer)
