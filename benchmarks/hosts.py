"""The seeds' two graphs, measured on slow hosts of this machine. Needs root; nothing sleeps.

    python -m benchmarks.hosts nodes 1 2 4 8 --cpus 0.18 --link 20MB/s --seeds 1 2 3
    python -m benchmarks.hosts servers 1 2 4 --links 5MB/s 20MB/s 100MB/s
    python -m benchmarks.hosts servers 1 2 4 --words "--torso ba3c --width 128 --size 84"

``nodes``: one worker on each of so many hosts with ``--cpus`` each, and a host more with ``--head``
CPUs for Ray's head, the tracker and the server; until the score is reached or the time is over.
``servers``: so many hosts with a server each behind a link, and workers on two hosts; all share
this machine's cores. What is in a host, Ray too, counts for its share (``tests/helpers/hosts.py``).

Each run is a line in ``results/hosts.jsonl``. Rates are of the time after ``SETTLED`` seconds:
``what``, ``preset``, ``words``, ``seed``; ``hosts`` with workers, ``workers``, ``servers``;
``cpus`` of a worker's host, ``head`` of the other, ``link`` in words (null: no limit);
``seconds`` and ``steps`` of the run; ``versions_per_s``, ``datapoints_per_s``; ``lag_median`` and
``lag_95`` in versions, over all updates; ``share_dropped`` of all gradients, those that counted at
some servers only for a half; ``moved_per_version`` bytes; ``until`` a mean score of training games
and ``seconds_to_score`` (null: not reached); ``machine``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.lib.ledger import RESULTS, Ledger
from benchmarks.lib.timed import read_metrics, steady_rate
from benchmarks.same import ROOT
from colobus.cli.main import run as colobus
from colobus.core.files import read_lines
from colobus.core.types import Update
from colobus.roles.tracker import Tracker
from colobus.runtime.graph import RoleGraph
from colobus.runtime.system import describe_machine
from colobus.training.run import Result, train
from colobus.training.topology import make_graph

SETTLED = 10.0
UPDATES = "updates.jsonl"
WORKERS = 4
"""Of a run of ``servers``, on `WORKER_HOSTS`."""
WORKER_HOSTS = 2


class Observed(Tracker):
    """A tracker that writes down each report of a learner."""

    def __init__(self, *args: Any, updates: Path, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._updates = updates

    def report(self, update: Update) -> bool:
        """See `Tracker`."""
        with self._updates.open("a") as file:
            file.write(json.dumps({"learner": update.learner, "lag": update.lag[1]}) + "\n")
        return super().report(update)


def observed(experiment: Any, start: Any, folder: Path, *args: Any, **kwargs: Any) -> RoleGraph:
    """Return the graph of a run whose tracker writes the reports down."""
    graph = make_graph(experiment, start, folder, *args, **kwargs)
    nodes = [
        replace(node, make=Observed, kwargs=node.kwargs | {"updates": folder / UPDATES})
        if node.make is Tracker
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes)


def train_observed(*args: Any, **rest: Any) -> Result:
    """Train as `train` does for the command line."""
    return train(*args, **(rest | {"make": observed}))


def measure(
    what: str, seed: int, hosts: int, servers: int, flags: argparse.Namespace, link: str | None
) -> dict[str, Any]:
    """Make the hosts, train on them, and return the line."""
    sys.path.append(str(ROOT / "tests"))
    from helpers.hosts import Hosts, ray_cluster

    nodes = what == "nodes"
    heads = 1 if nodes else 1 + servers  # h1 is Ray's head, and has the servers of ``nodes``
    workers = hosts if nodes else WORKERS
    names = [f"h{number}" for number in range(1, heads + hosts + 1)]
    of_servers = names[:1] if nodes else names[1:heads]
    place = f"servers={','.join(of_servers)} workers={','.join(names[heads:])}"
    with tempfile.TemporaryDirectory() as folder, Hosts(len(names), cpus=64.0) as all_hosts:
        run = Path(folder) / "run"
        with ray_cluster(all_hosts, cpus=max(workers // hosts, 1)) as cluster:
            for host in all_hosts:
                if nodes:
                    host.limit(flags.head if host.name == "h1" else flags.cpus, link)
                elif host.name in of_servers:
                    host.limit(link=link)
            words = [flags.preset, "--seed", str(seed), "--workers", str(workers)]
            words += ["--servers", str(servers), "--minutes", str(flags.minutes)]
            words += ["--out", str(run), "--no-finish", "--on", "ray", "--silence", "60"]
            words += ["--address", cluster.address, "--place", place, *flags.words.split()]
            if flags.until is not None:
                words += ["--until-score", str(flags.until)]
            environment = {"PYTHONPATH": str(ROOT), **cluster.environment}
            command = [sys.executable, "-m", "benchmarks.hosts", "train", *words]
            all_hosts[0].check(command, environment, 60.0 * flags.minutes + 900.0)
        return line_of(run, flags.until) | {
            "what": what,
            "preset": flags.preset,
            "words": flags.words,
            "seed": seed,
            "hosts": hosts,
            "workers": workers,
            "servers": servers,
            "cpus": flags.cpus if nodes else None,
            "head": flags.head if nodes else None,
            "link": link,
        }


def line_of(run: Path, until: float | None) -> dict[str, Any]:
    """Return what a run's files say."""
    metrics = read_metrics(run)
    last, lags = metrics[-1], [line["lag"] for line in read_lines(run / UPDATES)]
    dropped = last["gradients_dropped"] + last["gradients_partial"] / 2
    reached = (m["seconds"] for m in metrics if until is not None and (m["score"] or 0) >= until)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": last["seconds"],
        "steps": last["steps"],
        "versions_per_s": round(steady_rate(metrics, SETTLED, "version"), 4),
        "datapoints_per_s": round(steady_rate(metrics, SETTLED), 2),
        "lag_median": float(np.quantile(lags, 0.5)),
        "lag_95": float(np.quantile(lags, 0.95)),
        "share_dropped": round(dropped / max(last["updates"], 1), 4),
        "moved_per_version": round(last["moved_bytes"] / max(last["version"], 1)),
        "until": until,
        "seconds_to_score": next(reached, None),
        "machine": describe_machine(),
    }


def main(args: Sequence[str]) -> int:
    """Run the command."""
    if args[:1] == ["train"]:  # within a host
        with patch("colobus.cli.train.train", train_observed):
            return colobus(list(args))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("nodes", "servers"))
    parser.add_argument("counts", type=int, nargs="+", help="hosts with workers, or servers")
    parser.add_argument("--preset")
    parser.add_argument("--words", default="", help="more flags of the training")
    parser.add_argument("--cpus", type=float, default=0.18)
    parser.add_argument("--head", type=float, default=0.5)
    parser.add_argument("--link", default="20MB/s", help="of each host of nodes")
    parser.add_argument("--links", nargs="+", default=["5MB/s", "20MB/s", "100MB/s"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--until", type=float, help="a mean score (nodes of Catch: 0.8)")
    flags = parser.parse_args(args)
    nodes = flags.what == "nodes"
    flags.preset = flags.preset or ("dba3c-catch" if nodes else "dba3c-pong")
    flags.minutes = flags.minutes or (10.0 if nodes else 1.5)
    if nodes and flags.until is None and flags.preset == "dba3c-catch":
        flags.until = 0.8
    one = partial(measure, flags.what, flags=flags)
    for seed in flags.seeds:
        for link in [flags.link] if nodes else flags.links:
            for count in flags.counts:
                hosts, servers = (count, 1) if nodes else (WORKER_HOSTS, count)
                line = one(seed=seed, hosts=hosts, servers=servers, link=link)
                Ledger(RESULTS / "hosts.jsonl").append(line)
                print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
