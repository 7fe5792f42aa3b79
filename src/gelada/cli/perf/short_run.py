"""A short training that is measured, with a trace of what its threads do.

Unlike `gelada.cli.perf.throughput.bench` it measures no limit. It leaves no files but the trace.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gelada.cli.perf.limit import Progress
from gelada.cli.perf.profiler import Operators, Spans
from gelada.cli.perf.throughput import SETTLED, for_seconds, steady_rate
from gelada.core.errors import GeladaError, Stalled
from gelada.envs.make import MakeGames
from gelada.experiment.settings import Experiment
from gelada.runtime.devices import Devices, place, prepare
from gelada.runtime.graph import Graph
from gelada.runtime.system import describe_machine
from gelada.runtime.threads import Threads
from gelada.training.start import begin, open_games
from gelada.training.topology import make_graph

OPERATOR_SECONDS = 3.0
"""At the end of a profiled training, in which torch's operators are taken down too."""


class ShortRun(NamedTuple):
    """What was measured. Times are seconds of `time.monotonic`."""

    precision: str
    counts: list[tuple[float, int]]  # seconds of training and steps, every quarter of a second
    began: float
    ended: float
    calm: float  # until here nothing slowed it down
    roles: dict[str, Any]  # as they ended


def measure_run(
    experiment: Experiment,
    seconds: float,
    trace: Path | None = None,
    progress: Progress | None = None,
    devices: Devices | None = None,
    make: Callable[..., Graph] = make_graph,
    make_games: MakeGames | None = None,
) -> dict[str, Any]:
    """Train on threads for so long; return the rate, and the shares of time if there is a trace.

    Args:
        experiment: all settings; its stop rule and what it writes do not count.
        seconds: of training.
        trace: file to write.
        progress: told "train" and the share that is done.
        devices: that learn and act.
        make: makes the graph of the roles.
        make_games: loads games.

    Returns:
        ``achieved_steps_per_s`` in steps (agent decisions) per second, without the first `SETTLED`
        part. With a trace ``threads``: by role and stage the share of the same time, without that
        of stages inside it. The time in which operators are taken down counts for neither.

    Raises:
        GeladaError: if a role fails or hangs.
    """
    spans, operators = (Spans(), Operators()) if trace else (None, None)
    try:
        seen = train_once(
            experiment, seconds, spans, operators, progress, devices, make, make_games
        )
    finally:
        taken = operators.stop() if operators else {}
    counts = [count for count in seen.counts if seen.began + count[0] <= seen.calm]
    result: dict[str, Any] = {
        "game": experiment.games.game,
        "precision": seen.precision,
        "achieved_steps_per_s": round(steady_rate(counts or seen.counts), 1),
    }
    if spans and trace:
        spans.write(trace, taken)
        since = seen.began + SETTLED * (seen.ended - seen.began)
        shares = spans.shares(since, seen.calm)
        result["trace"] = str(trace)
        result["threads"] = {
            role: {stage: round(share, 4) for stage, share in stages.items()}
            for role, stages in shares.items()
        }
    return result | {"machine": describe_machine()}


def train_once(
    experiment: Experiment,
    seconds: float,
    spans: Spans | None = None,
    operators: Operators | None = None,
    progress: Progress | None = None,
    devices: Devices | None = None,
    make: Callable[..., Graph] = make_graph,
    make_games: MakeGames | None = None,
) -> ShortRun:
    """Train for so long.

    All stages go to ``spans``, and for the last `OPERATOR_SECONDS` (of a short training its last
    third) what they are made of to ``operators``.

    Raises:
        GeladaError: if a role fails or hangs.
    """
    torch.set_num_threads(1)
    placement = place(devices or Devices())
    prepare(placement, experiment.deterministic)
    experiment = for_seconds(experiment, seconds)
    games = open_games(experiment, make=make_games)
    start = begin(experiment, games, placement.learn)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        graph = make(
            experiment,
            start,
            Path(folder),
            began,
            games=games,
            make=make_games,
            placement=placement,
        )
        threads = Threads(graph.build(), experiment.shape.deadline, _no_restarts)
        if spans:
            spans.watch(threads.roles)
        counts, ended = _run(threads, began, seconds, operators, progress)
    calm = operators.since if operators and operators.since else ended
    return ShortRun(start.precision, counts, began, ended, calm, dict(threads.roles))


def _run(
    place: Threads,
    began: float,
    seconds: float,
    operators: Operators | None,
    progress: Progress | None,
) -> tuple[list[tuple[float, int]], float]:
    """Let roles run to their end; return seconds and steps as they went, and when it was."""
    tracker = place.roles["tracker"]
    counts: list[tuple[float, int]] = []
    record_at = began + max(seconds - OPERATOR_SECONDS, 2 / 3 * seconds)
    place.start()
    try:
        while True:
            over = place.wait(0.25)
            place.check()
            status = tracker.status()
            counts.append((status.seconds, status.steps))
            if progress:
                progress("train", min(status.seconds / seconds, 1.0))
            if over:
                break
            if operators and operators.since is None and time.monotonic() >= record_at:
                operators.record()
    finally:
        ended = time.monotonic()
        hung = place.stop()
        tracker.finish()
    if hung:
        raise Stalled(f"{', '.join(hung)} did not stop")
    return counts, ended


def _no_restarts(line: str) -> None:
    """A restart would spoil what is measured, so it ends it."""
    raise GeladaError(f"{line.rpartition('; ')[0]}; nothing was measured")
