"""What the stages of a run cost on this machine: ``colobus bench PRESET --costs FILE``.

Real roles run one after the other, so that none takes a core from another, and a stopwatch takes
down how long each stage was. Each repetition measures an actor of half as many, as many and twice
as many games. Then come a parameter server alone, and calls between two processes of Ray.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colobus.cli.throughput import Progress, measured
from colobus.core.files import write_whole
from colobus.core.timing import passing
from colobus.core.types import Gradient, Version
from colobus.experiment.settings import Experiment
from colobus.roles.parameters.server import Admission, ParameterServer
from colobus.roles.tracker import StopRule
from colobus.runtime.groups import Hosts
from colobus.runtime.system import describe_machine, keep_freed_memory
from colobus.runtime.virtual import BETWEEN, Turn, World
from colobus.training.on_ray import OnRay
from colobus.training.on_virtual import PER_PARAMETER, measured_with, parameters_of, simulated
from colobus.training.start import begin, open_games
from colobus.training.topology import make_graph

REPETITIONS = 5

FACTORS = (0.5, 1.0, 2.0)
"""Of the games of an actor."""

CALLERS = (1, 2, 4, 8, 16, 32, 64)

QUANTILES = np.linspace(0.0, 1.0, 21)

LEAST = 5
"""Batches from which a learner learns, however long that takes."""

PUSHED = 8
"""Gradients of a step of the server that is measured."""


class Stopwatch(World):
    """A time in which each stage takes as long as it really took, without what it called inside."""

    def __init__(self) -> None:
        super().__init__(lambda _role, _stage, _chance: 0.0)
        self.seconds: dict[str, list[float]] = {}
        # by thread: when the stages that it is in began, and the time inside of others
        self._frames = defaultdict[int, list[list[float]]](lambda: [[time.perf_counter(), 0.0]])

    def enter(self, stage: str) -> None:
        """Begin a stage; after a step, take down what was in none."""
        if stage == BETWEEN:
            self.leave(stage)
        self._frames[threading.get_ident()].append([time.perf_counter(), 0.0])

    def leave(self, stage: str) -> None:
        """Take down how long a stage was."""
        frames = self._frames[threading.get_ident()]
        began, inside = frames.pop()
        whole = time.perf_counter() - began
        spent = max(whole - inside, 0.0)
        self.seconds.setdefault(stage, []).append(spent)
        if frames:
            frames[-1][1] += whole
        self.sleep(spent)

    def _park(self, mine: Turn) -> None:
        """Let others run, which is no time of this thread's stage."""
        began = time.perf_counter()
        super()._park(mine)
        if frames := self._frames[threading.get_ident()]:
            frames[-1][1] += time.perf_counter() - began


def measure_costs(
    experiment: Experiment, file: Path, seconds: float, tell: Progress
) -> dict[str, Any]:
    """Measure all costs, and write them to a file; return what it has.

    The ``seconds`` of measuring are without what each part takes to begin.

    Raises:
        ColobusError: if Ray is not installed, or the file cannot be written.
    """
    keep_freed_memory()
    torch.set_num_threads(1)
    tell(0.0)
    with ExitStack() as stack:
        OnRay().join_cluster(stack)
        from colobus.runtime.ray.session import round_trips

        trips = round_trips(CALLERS, seconds / 4, REPETITIONS)
    points, servers = [], []
    for repetition in range(REPETITIONS):
        for number, factor in enumerate(FACTORS):
            done = (repetition * len(FACTORS) + number) / (REPETITIONS * len(FACTORS))
            tell(0.25 + 0.75 * done)
            one = alone(experiment, factor)
            each = seconds / (2 * REPETITIONS * len(FACTORS))
            stages, endings, parameters = stages_of(one, each)
            point = {"games": one.shape.games, "datapoints": one.shape.datapoints}
            about = {"repetition": repetition, **point, "endings": endings}
            points.append(about | {"stages": stages})
        servers.append(server_costs(experiment, parameters))
    found = {
        "about": measured_with(experiment),
        "machine": describe_machine(),
        "points": points,
        "servers": servers,
        "calls": [calls_of(CALLERS, *each) for each in trips],
    }
    write_whole(file, (json.dumps(found, indent=1) + "\n").encode())
    return found


def alone(experiment: Experiment, factor: float) -> Experiment:
    """Return one worker with so many times the games, and a batch that grows alike."""
    shape = experiment.shape
    games = max(round(shape.games * factor), 1)
    batch = max(round(shape.batch * games / shape.games), shape.length) if shape.batch else 0
    few = replace(shape, games=games, batch=batch, servers=1, quorum=0)
    few = replace(few, env_processes=few.env_processes and math.gcd(games, few.env_processes))
    rest = {"workers": min(shape.workers, 1), "random_steps": min(shape.random_steps, 512)}
    return measured(replace(experiment, shape=few), StopRule(steps=10**12), **rest)


def stages_of(experiment: Experiment, seconds: float) -> tuple[dict[str, list[float]], float, int]:
    """Run a run for so long.

    Returns:
        Quantiles of the seconds of each stage, the share of the rollouts in which a game ended
        (where several did, each counts), and the parameters.
    """
    world = Stopwatch()
    with passing(world):
        games = open_games(experiment)
        start = begin(experiment, games)
        graph = make_graph(experiment, start, None, 0.0, games=games, spread=True)
        runtime = simulated(graph, world, Hosts())
        runtime.start()
        few = True
        while (few or world.now() < seconds) and not runtime.wait(0.1):
            few = len(world.seconds.get("learn", ())) < LEAST
        runtime.stop()
        runtime.check()
    found = {}
    for stage, spent in world.seconds.items():
        settled = np.array(spent[len(spent) // 5 :])  # the first ones build kernels
        quantiles = np.quantile(settled, QUANTILES)
        mean = float((quantiles[1:] + quantiles[:-1]).mean() / 2)
        scaled = quantiles * (float(settled.mean()) / mean if mean else 1.0)
        found[stage] = [round(float(value), 9) for value in scaled]
    status, shape = runtime.roles["tracker"].status(), experiment.shape
    rollouts = status.steps / (shape.games * shape.length)
    return found, min(status.games / max(rollouts, 1.0), 1.0), parameters_of(graph)


def server_costs(experiment: Experiment, parameters: int) -> dict[str, float]:
    """Return the seconds a parameter for which a server steps, and takes one gradient more."""
    values, times = torch.zeros(parameters), dict[int, list[float]]()
    for needed in (1, PUSHED):
        server = ParameterServer(values, experiment.optimizer, Admission(needed), Version(0, 0))
        for number in range(6):
            began = time.perf_counter()
            for learner in range(needed):
                version = Version(0, number)
                server.push(Gradient(learner, version, 0, 1, 1.0, 1e-4, values + 1.0))
            times.setdefault(needed, []).append(time.perf_counter() - began)
    one, many = (float(np.median(times[needed][1:])) for needed in (1, PUSHED))
    more = max(many - one, 0.0) / (PUSHED - 1)
    return dict(zip(PER_PARAMETER, (one / parameters, more / parameters), strict=True))


def calls_of(
    callers: Sequence[int], empty: Sequence[float], costs: dict[str, float]
) -> dict[str, float]:
    """Return what calls cost (`Calls`), given what they took with so many callers at once.

    With many callers a round trip is as long as the event loop takes for all of them. With one it
    is as long as the work of both ends, one after the other, and what it waits for besides.
    """
    loop, rest = np.polyfit(callers, empty, 1, w=1.0 / np.array(empty))
    loop = max(float(loop), 0.0)
    work = costs["cpu"] + max(costs["cpu"], loop)
    latency = max(float(rest) + loop - work, empty[0] - work, 0.0) / 2
    return {"loop": loop, "latency": latency} | costs
