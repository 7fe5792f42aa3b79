"""Nodes against versions a second and time to a score: planned, simulated and measured.

    colobus bench dba3c-pong --env benchmarks.scaling:Board --games 2 --length 9 --costs FILE
    (FILE: benchmarks/results/scaling/pictures/costs.json, for tuning)
    python -m benchmarks.scaling tune                           a learning rate for each size
    python -m benchmarks.scaling costs                          the same command on a slow host
    python -m benchmarks.scaling speed --nodes 1 2                 on slow hosts of this machine
    python -m benchmarks.scaling predict                        fits 1 and 2, writes 3, 4 and 8
    python -m benchmarks.scaling speed --nodes 3 4 8               after that is committed
    (speed with --seeds 1 2 3 4 5 6)
    python -m benchmarks.scaling measure                        the same to the score
    python -m benchmarks.scaling speed --nodes 1 --crowd 7         what sharing two cores costs
    python -m benchmarks.scaling simulate                       real learning in simulated time
    python -m benchmarks.render pictures                        docs/pictures/nodes.png

All learn to catch in pictures as large as Pong's, with Pong's network, so a step costs what one of
Pong does, but 30,000 are enough. A node has a worker with two games, and half of the nodes (at most
16) have a server, too; one worker of eight is a backup. At each size the learning rate is the best
of the same number of draws, on three seeds that are used for nothing else. Simulations depend on
no clock, so they may run beside other work; measurements may not.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np

import colobus
from benchmarks.lib.ledger import RESULTS
from benchmarks.run import ROOT, surroundings
from colobus.algorithms.a3c import A3C
from colobus.cli.plan import simulate, spread_of
from colobus.core.files import read_lines
from colobus.experiment.presets import in_environment
from colobus.experiment.settings import Experiment, flag
from colobus.runtime.groups import Hosts
from colobus.training.on_virtual import Costs, read_costs

FOLDER = RESULTS / "scaling" / "pictures"
ROWS, PREDICTION = "rows.jsonl", "prediction-megabyte.json"
COSTS, COSTS_SLOW = FOLDER / "costs.json", FOLDER / "costs-megabyte.json"
FITTED = FOLDER / "fitted-megabyte.json"
"""The same costs times a factor, with which the plan is right about one and two slow hosts."""

ENV = "benchmarks.scaling:Board"
PRESET, SCORE = "dba3c-pong", 0.9

SHAPE: dict[str, Any] = {"games": 2, "length": 9, "random_steps": 512}
"""Of a worker; 9 steps are a whole game. With the preset's eight games of 20 steps a few dozen
versions are enough at any number of nodes."""

CPUS, LINK = 0.2, "250MB/s"
"""Of a slow host: CPUs of its roles, and bytes a second in each direction. It is a node of one core
and 10 Gb/s on which all takes five times as long. Ray's daemons and the run's own process are not
slow: on a node of 12 cores they would have one of their own."""

SECONDS_TO_CONFINE = 0.5
"""Between two looks for processes that Ray has begun since."""

SIZES = (1, 2, 4, 8, 16, 32, 64)
SEEDS, TUNING = (1, 2, 3), (101, 102, 103)
RATE, DRAWS = 1e-3, (0.25, 0.7, 2.0)
"""Learning rates that are tried are these times `RATE`, times the root of the nodes."""

STEPS = 250_000
"""After which a run that has not reached the score is given up."""

LIMIT = 3600.0
"""Seconds that a run on slow hosts may take."""

SPEED, SIMULATED = "speed, megabyte", "virtual, megabyte"
MEASURED, VIRTUAL = "measured, one day", "virtual, one day"
"""Kinds of rows. The first two are of today's code, costs included: runs of a few versions, and
simulated time. Those of the picture, runs to the score beside simulated time, are of the day before
the line between calls and the store was moved. Others in the file are older."""

SECONDS_OF_COSTS = 240.0
"""On a slow host, where all takes five times as long."""

VERSIONS = 150
"""Of a run of which only the speed is of interest."""

SETTLED = 0.3
"""Share of a run whose speed does not count."""

STEPS_OF_FIT = 6


class Board(gymnasium.Env[Any, Any]):
    """A ball falls through a picture in nine steps, and a paddle that moves below catches it."""

    action_space: Any = gymnasium.spaces.Discrete(3)
    observation_space: Any = gymnasium.spaces.Box(0, 255, (42, 42), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin with ball and paddle anywhere."""
        super().reset(seed=seed)
        self.row, (self.ball, self.paddle) = 0, self.np_random.integers(7, size=2)
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the paddle left, not at all or right."""
        self.row, self.paddle = self.row + 1, np.clip(self.paddle + action - 1, 0, 6)
        over, caught = self.row == 9, 1.0 if self.ball == self.paddle else -1.0
        return self.look(), over * caught, over, False, {}

    def look(self) -> Any:
        """Return the picture, uint8[42, 42]."""
        picture = np.zeros((42, 42), np.uint8)
        picture[4 * self.row :][:4, 6 * self.ball :][:, :6] = 255
        picture[38:, 6 * self.paddle :][:, :6] = 255
        return picture


def setting(nodes: int, lr: float, seed: int) -> Experiment:
    """Return the run on so many nodes."""
    experiment = in_environment(colobus.preset(PRESET), ENV)[0]
    servers, quorum = min(max(nodes // 2, 1), 16), nodes - nodes // 8
    shape = replace(experiment.shape, workers=nodes, quorum=quorum, servers=servers, **SHAPE)
    assert isinstance(experiment.algorithm, A3C)
    algorithm = replace(experiment.algorithm, lr=lr, lr_end=lr, anneal_steps=0)
    stop = colobus.StopRule(steps=STEPS, until_score=SCORE)
    tracker = replace(experiment.tracker, tensorboard=False)
    return replace(
        experiment, shape=shape, algorithm=algorithm, stop=stop, seed=seed, tracker=tracker
    )


def row_of(run: Path) -> dict[str, Any]:
    """Return what a finished run has come to, from its metrics."""
    lines = read_lines(run / "metrics.jsonl")
    began = lines[0]["seconds"]  # with the first version: the start of processes does not count
    reached = [line["seconds"] - began for line in lines if (line["score"] or -1.0) >= SCORE]
    late = [line for line in lines if line["seconds"] >= SETTLED * lines[-1]["seconds"]]
    first, last = late[0], late[-1]
    seconds = max(last["seconds"] - first["seconds"], 1e-9)
    lags = [line["lag_mean"] for line in late]
    sent = {name: last[f"gradients_{name}"] for name in ("counted", "dropped", "partial")}
    share = {name: round(sent[name] / max(sum(sent.values()), 1), 4) for name in sent}
    return {
        "seconds": round(reached[0], 3) if reached else None,
        "steps": last["steps"],
        "versions_per_s": round((last["version"] - first["version"]) / seconds, 4),
        "lag": [float(np.median(lags)), float(np.quantile(lags, 0.95))],
        "dropped": share["dropped"],
        "partial": share["partial"],  # counted by some servers; in rows since 2026-11-30
    }


def on_virtual(costs: Path) -> Callable[[Experiment, int, Path], None]:
    """Return what learns in simulated time, with the costs in a file."""
    hosts = Hosts(costs=str(costs), host_cores=CPUS, link=LINK)

    def run(experiment: Experiment, nodes: int, folder: Path) -> None:
        colobus.train(experiment, out=folder, cluster=replace(hosts, hosts=nodes), progress=False)

    return run


def slow_hosts() -> tuple[Any, Any]:
    """Return what makes hosts, and a Ray of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.hosts import hosting, ray_cluster

    return hosting, ray_cluster


def on_slow_hosts(crowd: int, experiment: Experiment, nodes: int, folder: Path) -> None:
    """Learn on a Ray of slow hosts of this machine, beside a crowd of others that have no Ray.

    Each of the others trains by itself on threads, and takes as much time of a core as it gets.
    """
    slow, ray_cluster = slow_hosts()
    shape, algorithm = experiment.shape, experiment.algorithm
    assert isinstance(algorithm, A3C)
    words: list[object] = [sys.executable, "-m", "colobus", "train", PRESET, "--env", ENV]
    for name, value in SHAPE.items():
        words += [flag(name), value]
    words += ["--lr", algorithm.lr, "--lr-end", algorithm.lr, "--anneal-steps", 0]
    words += ["--no-finish", "--no-tensorboard", "--out"]
    own: list[object] = ["--workers", shape.workers, "--servers", shape.servers]
    own += ["--quorum", shape.quorum, "--on", "ray"]
    own += ["--seed", experiment.seed, "--steps", experiment.stop.steps]
    own += ["--until-score", SCORE] if experiment.stop.until_score else []
    with slow(nodes + crowd) as every, ray_cluster(every[:nodes], cpus=2) as cluster:
        hosts, others = every[:nodes], every[nodes:]
        for host in others:
            host.limit(CPUS)
            forever = [*words, folder.with_name(host.name), "--workers", 1, "--steps", 10**9]
            host.run(forever, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = [*words, folder, *own, "--address", cluster.address]
        program = hosts[0].run(run, cluster.environment)
        for host in hosts:  # after Ray and the run's process have begun: they are not slow
            host.limit(CPUS, LINK)
        until, begun, said = time.monotonic() + LIMIT, folder / "metrics.jsonl", ("", "")
        while program.returncode is None and time.monotonic() < until:
            for host in hosts if begun.exists() else ():
                host.confine("ray::Process")
            with suppress(subprocess.TimeoutExpired):
                said = program.communicate(timeout=SECONDS_TO_CONFINE)
        if program.returncode != 0:
            raise SystemExit(f"{nodes} nodes: exit {program.returncode}: {said[1]}")


def slow_costs() -> None:
    """Measure costs on a slow host, where a stage is interrupted often; write them for a core.

    Ray's daemons have all of this machine, as in a run. What was measured in seconds is so many
    times shorter as the host is slower; what was measured in time of a core is what it is. Both
    ends of a call share the host, so the event loop is not told from the rest.
    """
    words: list[object] = [sys.executable, "-m", "colobus", "bench", PRESET, "--env", ENV]
    for name in ("games", "length"):
        words += [flag(name), SHAPE[name]]
    words += ["--costs", COSTS_SLOW, "--seconds", SECONDS_OF_COSTS]
    with slow_hosts()[0](1) as (host,):
        program = host.run(words)
        host.limit(CPUS)
        for title in ("ray::Process", "".join(map(str, words[:4]))):
            while not host.confine(title) and program.poll() is None:
                time.sleep(SECONDS_TO_CONFINE)
        said = program.communicate()
    if program.returncode != 0:
        raise SystemExit(f"exit {program.returncode}: {said[1]}")
    found = json.loads(COSTS_SLOW.read_text(encoding="utf-8"))
    for point in found["points"]:
        point["stages"] = {n: [CPUS * s for s in v] for n, v in point["stages"].items()}
    found["servers"] = [{n: CPUS * v for n, v in one.items()} for one in found["servers"]]
    for one in found["calls"]:
        loop = min(CPUS * one["loop"], one["cpu"])
        sent = {name: CPUS * one[name] for name in ("byte", "stored", "carried")}
        one.update(loop=loop, latency=0.0, **sent)
    COSTS_SLOW.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def add_rows(
    kind: str,
    learn: Callable[[Experiment, int, Path], None],
    nodes: int,
    rates: Sequence[float],
    seeds: Sequence[int],
) -> None:
    """Run what is missing at a size; write rows."""
    for lr, seed in product(rates, seeds):
        about = {"kind": kind, "nodes": nodes, "lr": lr, "seed": seed}
        if any(about.items() <= row.items() for row in rows()):
            continue
        experiment = setting(nodes, lr, seed)
        if "speed" in kind:
            steps = VERSIONS * experiment.shape.quorum * experiment.shape.datapoints
            experiment = replace(experiment, stop=colobus.StopRule(steps=steps))
        with tempfile.TemporaryDirectory() as folder:
            learn(experiment, nodes, Path(folder) / "run")
            found = about | row_of(Path(folder) / "run") | surroundings()
        with (FOLDER / ROWS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps({k: found[k] for k in (*about, "seconds", "versions_per_s")}), flush=True)


def rows(kind: str = "", nodes: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a kind, or all; at a size, or at all."""
    every = read_lines(FOLDER / ROWS) if (FOLDER / ROWS).exists() else []
    return [r for r in every if kind in ("", r["kind"]) and nodes in (0, r["nodes"])]


def drawn(nodes: int) -> list[float]:
    """Return the learning rates that are tried."""
    return [round(RATE * float(np.sqrt(nodes)) * draw, 5) for draw in DRAWS]


def best_rate(nodes: int) -> float:
    """Return the rate with the smallest median of seconds to the score; a missing run has none."""
    every = rows("tuning", nodes)
    if not every:
        raise SystemExit(f"tune {nodes} nodes first")

    def seconds(lr: float) -> float:
        found = [row["seconds"] or math.inf for row in every if row["lr"] == lr]
        return median(found + [math.inf] * (len(TUNING) - len(found)))

    return min(drawn(nodes), key=seconds)


def scaled(costs: Costs, factor: float) -> Costs:
    """Return costs whose stages take so many times as long."""
    points = tuple(
        point | {"stages": {n: [factor * s for s in v] for n, v in point["stages"].items()}}
        for point in costs.points
    )
    return replace(costs, points=points)


def fitted(costs: Costs, measured: dict[int, float]) -> float:
    """Return the factor of stages with which 1 and 2 hosts are as fast as measured, in the mean.

    The mean is of logarithms. Stages were measured one after the other, and share caches and
    Python's lock in a run. Calls are not scaled: they were measured between two processes.
    """
    factor = 1.0
    for _ in range(STEPS_OF_FIT):
        fit = scaled(costs, factor)
        missed = [math.log(predicted(fit, n)["versions"][0] / measured[n]) for n in (1, 2)]
        factor *= math.exp(sum(missed) / len(missed))
    return factor


def predicted(costs: Costs, nodes: int) -> dict[str, list[float]]:
    """Return what the plan says about so many slow hosts: median, least and most of repetitions."""
    hosts, of = Hosts(hosts=nodes, host_cores=CPUS, link=LINK), setting(nodes, RATE, 1)
    speeds = [simulate(of, costs, hosts, repetition) for repetition in range(costs.repetitions)]
    return {
        "versions": spread_of([speed.versions for speed in speeds]),
        "lag": spread_of([speed.lag[0] for speed in speeds]),
        "lag_95": spread_of([speed.lag[1] for speed in speeds]),
        "dropped": spread_of([speed.dropped for speed in speeds]),
    }


def medians(kind: str) -> dict[int, dict[str, float]]:
    """Return the medians over seeds of the rows of a kind, by nodes."""
    found = dict[int, dict[str, float]]()
    for nodes in sorted({row["nodes"] for row in rows(kind)}):
        of = rows(kind, nodes)
        found[nodes] = {
            "versions": median(row["versions_per_s"] for row in of),
            "lag_95": median(row["lag"][1] for row in of),
            "dropped": median(row["dropped"] for row in of),
        }
    return found


def predict() -> None:
    """Fit one and two hosts, and write what the plan says about three, four and eight."""
    measured = {nodes: row["versions"] for nodes, row in medians(SPEED).items()}
    if not {1, 2} <= measured.keys():
        raise SystemExit("measure 1 and 2 hosts first")
    costs = read_costs(str(COSTS_SLOW), setting(1, RATE, 1), PRESET)
    factor = fitted(costs, measured)
    fit = scaled(costs, factor)
    FITTED.write_text(json.dumps(asdict(fit), indent=1) + "\n", encoding="utf-8")
    if 8 in measured:
        print(f"{FITTED}, by {factor:.2f}; 8 hosts are measured already: there is no prediction")
        return
    said: dict[str, Any] = {"fit": {"factor": factor, "of": measured}} | surroundings()
    said |= {str(nodes): predicted(fit, nodes) for nodes in (3, 4, 8)}
    (FOLDER / PREDICTION).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    print(f"{FOLDER / PREDICTION}: commit it, then measure 3, 4 and 8 hosts")


def page() -> list[str]:
    """Return the lines of a table: what was measured, and what was said about it before."""
    said = FOLDER / PREDICTION
    every = json.loads(said.read_text()) if said.exists() else {}
    kinds: dict[str, dict[int, Any]] = {"virtual": medians(SIMULATED)}
    kinds["measured"] = medians(SPEED)
    kinds["plan"] = {int(nodes): row for nodes, row in every.items() if nodes.isdecimal()}
    lines = ["| nodes | versions/s | lag, 95 % | dropped |", "| --- | --- | --- | --- |"]
    for nodes in sorted({nodes for found in kinds.values() for nodes in found}):
        measured = kinds["measured"].get(nodes, {})
        for kind, found in kinds.items():
            if (row := found.get(nodes)) is None:
                continue
            cells = [f"{nodes}, {kind}"]
            for name, form in (("versions", ".1f"), ("lag_95", ".1f"), ("dropped", ".3f")):
                value = float(np.ravel(row[name])[0])
                known = kind != "measured" and measured.get(name)
                other = f" ({value / known - 1.0:+.0%})" if known else ""
                cells.append(f"{value:{form}}{other}")
            if kind == "measured":
                rates = sorted(row["versions_per_s"] for row in rows(SPEED, nodes))
                cells[1] += f" ({rates[0]:.1f} to {rates[-1]:.1f})"
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=("tune", "costs", "speed", "predict", "measure", "simulate")
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--crowd", type=int, help="slow hosts beside those of a run: rows apart")
    flags = parser.parse_args(args)
    if flags.what in ("costs", "predict"):
        slow_costs() if flags.what == "costs" else predict()
        return 0
    for nodes in flags.nodes:
        if flags.what == "tune":
            add_rows("tuning", on_virtual(COSTS), nodes, drawn(nodes), TUNING)
        else:
            among = "" if flags.crowd is None else f" among {flags.crowd} others"
            measured = {"speed": f"{SPEED}{among}", "measure": MEASURED}
            kind = measured.get(flags.what, SIMULATED)
            slow = partial(on_slow_hosts, flags.crowd or 0)
            learn = slow if flags.what in measured else on_virtual(FITTED)
            add_rows(kind, learn, nodes, [best_rate(nodes)], flags.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
