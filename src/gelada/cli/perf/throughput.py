"""How fast this machine could train, and how fast it does: ``gelada bench``.

The limit is measured by `gelada.cli.perf.limit`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gelada.cli.perf.limit import Progress, limit_of, stage_rates
from gelada.core.timing import WAIT
from gelada.experiment.settings import Experiment
from gelada.roles.tracker import Status, StopRule
from gelada.runtime.api import Active
from gelada.runtime.devices import Devices, describe_devices, place, prepare
from gelada.runtime.graph import RoleGraph
from gelada.runtime.groups import Cluster
from gelada.runtime.system import describe_machine, keep_freed_memory
from gelada.training.run import train
from gelada.training.start import begin, open_games
from gelada.training.topology import make_graph

SETTLED = 0.3
"""Share of the training time that is not counted: loading, first kernels, filling queues."""


def bench(
    experiment: Experiment,
    seconds: float = 40.0,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
    devices: Devices | None = None,
) -> dict[str, Any]:
    """Measure the limit, train, measure the limit again, and return rates and their ratio.

    The limit is always that of this machine; with a ``cluster``, training lives in its processes.

    Rates are steps (agent decisions) per second. ``act`` and ``learn`` samples are steps too: a
    learned one with all its epochs, or as often as a replay buffer is sampled for it. Half the time
    goes to training. The rates of the limit are means of before and after, because shared machines
    drift.
    """
    tell = progress or (lambda _stage, _share: None)
    keep_freed_memory()
    torch.set_num_threads(1)
    experiment = for_seconds(experiment, seconds / 2)
    placement = place(devices or Devices())
    start = begin(experiment, open_games(experiment), placement.learn)
    prepare(placement, experiment.deterministic)

    def rates_now(first: float) -> dict[str, float]:
        def told(stage: str, part: float) -> None:
            tell(stage, first + 0.25 * part)

        return stage_rates(experiment, start, seconds / 12, told, placement)

    before = rates_now(0.0)
    counts, waits = trained(
        experiment, cluster, devices, lambda part: tell("train", 0.25 + 0.5 * part)
    )
    after = rates_now(0.75)
    rates = {name: (before[name] + after[name]) / 2 for name in before}
    limit = limit_of(rates, placement)
    achieved = steady_rate(counts)
    return {
        "game": experiment.games.game,
        "precision": start.precision,
        "emulate_steps_per_s": round(rates["emulate"], 1),
        "act_samples_per_s": round(rates["act"], 1),
        "learn_samples_per_s": round(rates["learn"], 1),
        **({"feed_samples_per_s": round(rates["feed"], 1)} if "feed" in rates else {}),
        "limit_steps_per_s": round(limit, 1),
        "limit_before_after": [round(limit_of(part, placement), 1) for part in (before, after)],
        "achieved_steps_per_s": round(achieved, 1),
        "share_of_limit": round(achieved / limit, 3),
        **waits,
        "machine": describe_machine() | describe_devices(placement),
    }


def for_seconds(experiment: Experiment, seconds: float) -> Experiment:
    """Return the experiment as it is measured: it ends by the clock, and writes next to nothing."""
    return replace(
        experiment,
        stop=StopRule(minutes=seconds / 60),
        tracker=replace(experiment.tracker, tensorboard=False, checkpoint_seconds=1e9),
    )


def trained(
    experiment: Experiment,
    cluster: Cluster | None,
    devices: Devices | None,
    tell: Callable[[float], None],
    make: Callable[..., RoleGraph] = make_graph,
) -> tuple[list[tuple[float, int]], dict[str, float]]:
    """Train for the minutes of the stop rule, into a folder that is deleted; return what was seen.

    Args:
        experiment: all settings.
        cluster: of processes (None: threads).
        devices: of the networks (None: the CPU).
        tell: takes the share of the time that is over.
        make: makes the graph of the roles.

    Returns:
        (seconds, steps), about twice a second and at the end, and `waiting_shares`.
    """
    counts: list[tuple[float, int]] = []
    roles: list[Active] = []
    minutes = experiment.stop.minutes or 1.0

    def watch(status: Status, active: Sequence[Active]) -> None:
        roles[:] = active
        counts.append((status.seconds, status.steps))
        tell(min(status.seconds / (60 * minutes), 1.0))

    with tempfile.TemporaryDirectory() as folder:
        result = train(
            experiment,
            Path(folder) / "run",
            "bench",
            watch=watch,
            log=lambda _: None,
            cluster=cluster,
            devices=devices,
            make=make,
        )
    counts.append((result.status.seconds, result.status.steps))
    return counts, waiting_shares(roles)


def waiting_shares(roles: Sequence[Active]) -> dict[str, float]:
    """Return for which share of its time the first learner waited, and the first loader if any.

    Returns:
        ``learner_waits`` and ``loader_waits``, for any other role, and ``learner_waits_for_batch``.
        A learner without a loader joins its batch in that time too.
    """
    found = dict[str, float]()
    for role in roles:
        if role.name not in ("loader-0", "learner-0"):
            continue
        seconds, name = dict(role.clock.seconds), role.name.removesuffix("-0")
        total = max(sum(seconds.values()), 1e-9)
        waited = sum(spent for stage, spent in seconds.items() if stage.startswith(WAIT))
        found[f"{name}_waits"] = round(waited / total, 3)
        if name == "learner":
            batch = seconds.get("wait for experience", 0.0)
            found["learner_waits_for_batch"] = round(batch / total, 3)
    return found


def steady_rate(counts: Sequence[tuple[float, int]]) -> float:
    """Return steps per second from (seconds, steps) pairs, without the first `SETTLED` part.

    It is 0 if nothing was counted, as while a replay buffer fills.
    """
    end_seconds, end_steps = counts[-1] if counts else (0.0, 0)
    since = [(s, n) for s, n in counts if n > 0 and s >= SETTLED * end_seconds]
    if not since:
        return 0.0
    first_seconds, first_steps = since[0]
    return (end_steps - first_steps) / max(end_seconds - first_seconds, 1e-9)
