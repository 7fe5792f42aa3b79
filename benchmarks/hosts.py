"""Datapoints a second against servers behind links of limited speed, on hosts of this machine.

    python -m benchmarks.hosts 1 2 4 --links 5MB/s 20MB/s 100MB/s
    python -m benchmarks.hosts 1 2 4 --words "--torso ba3c --width 128 --size 84"
    python -m benchmarks.hosts                                docs/pictures/servers.png

So many hosts have a server each behind a link, and two hosts have workers; all share this machine's
cores. What is in a host, Ray too, counts for its share. Needs root (``tests/helpers/hosts.py``).

Each run is a line in ``results/hosts.jsonl``. Rates are of the time after ``SETTLED`` seconds:
``preset``, ``words``, ``seed``; ``workers``, ``servers``; ``link`` in words; ``seconds`` and
``steps`` of the run; ``versions_per_s``, ``datapoints_per_s``; ``share_dropped`` of all gradients,
those that counted at some servers only for a half; ``moved_per_version`` bytes; ``machine``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lib.ledger import RESULTS, Ledger
from benchmarks.lib.timed import read_metrics, steady_rate
from benchmarks.same import ROOT
from colobus.core.files import read_lines
from colobus.runtime.system import describe_machine

SETTLED = 10.0
WORKERS, WORKER_HOSTS = 4, 2
LINES = RESULTS / "hosts.jsonl"
PICTURE = ROOT / "docs" / "pictures" / "servers.png"


def measure(seed: int, servers: int, link: str, flags: argparse.Namespace) -> dict[str, Any]:
    """Make the hosts, train on them, and return the line."""
    sys.path.append(str(ROOT / "tests"))
    from helpers.hosts import hosting, ray_cluster

    names = [f"h{number}" for number in range(1, 2 + servers + WORKER_HOSTS)]
    of_servers, of_workers = names[1 : 1 + servers], names[1 + servers :]  # h1 is Ray's head
    place = f"servers={','.join(of_servers)} workers={','.join(of_workers)}"
    with tempfile.TemporaryDirectory() as folder, hosting(len(names)) as hosts:
        run = Path(folder) / "run"
        with ray_cluster(hosts, cpus=WORKERS // WORKER_HOSTS) as cluster:
            for host in hosts:
                if host.name in of_servers:
                    host.limit(link=link)
            words = [flags.preset, "--seed", str(seed), "--workers", str(WORKERS)]
            words += ["--servers", str(servers), "--minutes", str(flags.minutes)]
            words += ["--out", str(run), "--no-finish", "--on", "ray", "--silence", "60"]
            words += ["--address", cluster.address, "--place", place, *flags.words.split()]
            command = [sys.executable, "-m", "colobus", "train", *words]
            hosts[0].check(command, cluster.environment, 60.0 * flags.minutes + 900.0)
        return line_of(run) | {
            "preset": flags.preset,
            "words": flags.words,
            "seed": seed,
            "workers": WORKERS,
            "servers": servers,
            "link": link,
        }


def line_of(run: Path) -> dict[str, Any]:
    """Return what a run's files say."""
    metrics = read_metrics(run)
    last = metrics[-1]
    dropped = last["gradients_dropped"] + last["gradients_partial"] / 2
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": last["seconds"],
        "steps": last["steps"],
        "versions_per_s": round(steady_rate(metrics, SETTLED, "version"), 4),
        "datapoints_per_s": round(steady_rate(metrics, SETTLED), 2),
        "share_dropped": round(dropped / max(last["updates"], 1), 4),
        "moved_per_version": round(last["moved_bytes"] / max(last["version"], 1)),
        "machine": describe_machine(),
    }


def draw() -> None:
    """Draw datapoints a second against servers: a chart a network, a line a link."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = read_lines(LINES)
    words = list(dict.fromkeys(line["words"] for line in lines))
    figure = Figure(figsize=(4.8 * len(words), 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, of in zip(figure.subplots(1, len(words), squeeze=False)[0], words, strict=True):
        for link in dict.fromkeys(line["link"] for line in lines):
            rates: dict[int, list[float]] = {}
            for line in lines:
                if (line["words"], line["link"]) == (of, link):
                    rates.setdefault(line["servers"], []).append(line["datapoints_per_s"])
            axes.plot(list(rates), [median(rate) for rate in rates.values()], "o-", label=link)
        counts = sorted({line["servers"] for line in lines})
        axes.set(xlabel="servers", ylabel="datapoints a second", ylim=(0, None), xticks=counts)
        axes.set_title(f"{lines[0]['preset']} {of}".strip(), fontsize=8)
        axes.grid(alpha=0.3)
        axes.legend(title="link of a server", fontsize=8)
    figure.savefig(PICTURE)
    print(PICTURE)


def main(args: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("counts", type=int, nargs="*", help="of servers (none: draw the figure)")
    parser.add_argument("--preset", default="dba3c-pong")
    parser.add_argument("--words", default="", help="more flags of the training")
    parser.add_argument("--links", nargs="+", default=["5MB/s", "20MB/s", "100MB/s"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--minutes", type=float, default=1.5)
    flags = parser.parse_args(args)
    for seed, link, servers in product(flags.seeds, flags.links, flags.counts):
        line = measure(seed, servers, link, flags)
        Ledger(LINES).append(line)
        print(json.dumps(line), flush=True)
    if not flags.counts:
        draw()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
