"""A run in words: what will happen, how it goes and when it ends, how it went, how to go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from colobus.core.checkpoint import Check, list_checkpoints
from colobus.core.errors import program, quoted
from colobus.core.timing import clock
from colobus.experiment.settings import Experiment
from colobus.experiment.shape import MOST
from colobus.roles.tracker import WINDOW, Status, StopRule, WorkersStatus
from colobus.runs.folder import CHECKPOINTS, CURVE, FILM, RECONSTRUCTION
from colobus.runtime.api import RoleState
from colobus.runtime.groups import Cluster, Hosts
from colobus.runtime.system import usable_cores
from colobus.training.saving import newest_of

PARTS = {
    "emulate": "the games themselves",
    "act": "choosing actions",
    "learn": "learning",
    "starting": "starting up",
}
"""Stages that can bound the speed, in words."""

DOING = {
    "emulate": "playing",
    "act": "playing",
    "load parameters": "playing",
    "start games": "starting games",
    "wait for experience": "waiting for games to learn from",
    "wait for parameters": "waiting for parameters",
    "wait for room": "waiting for the learner",
    "wait for the disk": "waiting for the disk",
    "learn": "learning a first batch",
}
"""What a role does in a stage."""

PICTURES = {
    "the learning curve": CURVE,
    "the film": FILM,
    "the reconstructions": RECONSTRUCTION,
}
"""Files of a run that people look at, by what the last lines call them."""


REAL = 64
"""Workers of the largest run that was tested on Ray: the shape of DBA3C's paper."""


def opening(
    experiment: Experiment, folder: Path, resumed: bool, on: str, cluster: Cluster | Hosts
) -> str:
    """Return the first line: what is about to happen, and what a run on Ray waits for first."""
    what = "going on with" if resumed else f"learning {experiment.games.game} into"
    said = f"{what} {folder}: {shape_in_words(experiment)}; {stop_in_words(experiment.stop)}"
    if on == "virtual":
        return f"{said}; all times are simulated"
    if on != "ray" or isinstance(cluster, Hosts):
        return said
    if (many := experiment.shape.topology.shared) > REAL:
        said += (
            f"; {many:,} processes with actors or learners: on hosts {REAL} were tested, "
            f"{MOST:,} in a simulation"
        )
    if cluster.joined:
        return f"{said}; first it joins the Ray cluster at {cluster.joined}"
    return f"{said}; first it starts Ray on this machine, which takes some seconds"


def shape_in_words(experiment: Experiment) -> str:
    """Return who learns as a phrase."""
    shape, memory = experiment.shape, experiment.replay
    players = f"{shape.actors} actors x {shape.games} games"
    kept = f", replay buffer of {memory.capacity:,} steps" if memory.capacity else ""
    topology = shape.topology
    if topology.replicas > 1:
        return f"{topology.replicas} learners that step alike, each with {players}"
    if not topology.remote_servers:
        return f"{players}, 1 learner{kept}"
    if shape.asynchronous:
        rule = f"asynchronous, at most {shape.max_staleness} versions old"
    else:
        backups = topology.learners - topology.gradients
        rule = f"{topology.gradients} gradients a step, {backups} backups"
    if shape.learners:
        return (
            f"{players}, {shape.learners} learners, {shape.replays} replay buffers of "
            f"{memory.capacity:,} steps, {shape.servers} servers, {rule}"
        )
    return (
        f"{shape.workers} workers of {shape.actors} x {shape.games} games and a learner{kept}, "
        f"{shape.servers} servers, {rule}"
    )


def stop_in_words(rule: StopRule) -> str:
    """Return a stop rule as a phrase."""
    parts = []
    if rule.until_score is not None:
        parts.append(f"score {rule.until_score:.7g} (mean of {WINDOW} games)")
    if rule.steps is not None:
        parts.append(f"{rule.steps:,} steps")
    if rule.minutes is not None:
        parts.append(f"{rule.minutes:g} min")
    if rule.until_evaluated is not None:
        goal = rule.until_evaluated
        parts.append(f"evaluated score {goal if isinstance(goal, str) else f'{goal:.7g}'}")
    return f"until {' or '.join(parts)}" if parts else "until Ctrl-C"


def how_it_went(status: Status) -> str:
    """Return the line after a run that has ended by itself."""
    done = f"{status.steps:,} steps in {clock(status.seconds)}"
    if status.score is None:
        return f"{done}; no game was over yet, so there is no score"
    count = min(status.games, WINDOW)
    games = "game" if count == 1 else f"{count} games"
    return f"{done}; mean score of the last {games}: {number(status.score)}"


def why_less(score: float | None, mean: float, error: float) -> str:
    """Return why an evaluation is below the score of training; "" if it is not by much.

    ``score`` is that of the end of training, ``error`` the standard error of the ``mean``.
    """
    if score is None or not mean < score - 2 * error:
        return ""
    return (
        f"training ended at {score:.2f}, a mean of its last games, which earlier versions of the "
        "agent played (with --until-score that by which the run ended, and so on the lucky side); "
        f"{mean:.2f} is of new games of the agent that was saved"
    )


def how_to_go_on(args: Sequence[str], resumed: bool, folder: Path, launch: Sequence[str]) -> str:
    """Return the command that goes on with a run after an interruption.

    A run's config.json has neither where it ran nor the stop rule of a later start, so they are
    given again.

    Args:
        args: words after ``colobus train``.
        resumed: whether they go on with a run.
        folder: of the run.
        launch: flags that say where the roles of a new run are.
    """
    words = args if resumed else ["--resume", str(folder), *launch]
    return f"{program()} train {quoted(*words)}"


def how_it_stopped(folder: Path, again: str, steps: int, why: str, saved: bool = True) -> str:
    """Return the line after an interruption, with the steps that are kept.

    ``again`` is the command that goes on, ``saved`` whether nothing that was learned is lost.
    """
    if not has_checkpoint(folder):
        return f"stopped by {why} before anything was learned: there is nothing to go on with"
    what = "all saved" if saved else "what was learned after that could not be saved"
    return f"stopped by {why} at {steps:,} steps, {what}; go on with: {again}"


def where_everything_is(folder: Path, steps: int, launch: Sequence[str] = ()) -> list[str]:
    """Return the last lines: what is where, and what to do next.

    ``steps`` are those that were learned, ``launch`` flags that say where the run's roles are.
    """
    colobus, on = program(), quoted("--steps", str(2 * steps), *launch)
    rows = [("everything is in", str(folder))]
    rows += [
        (what, str(folder / file)) for what, file in PICTURES.items() if (folder / file).is_file()
    ]
    run = quoted(str(folder))
    rows += [
        ("watch it again", f"{colobus} record {run}"),
        ("evaluate it", f"{colobus} eval {run}"),
        ("learn on", f"{colobus} train --resume {run} {on}"),
    ]
    return [f"{what:<20}{how}" for what, how in rows]


def already_over(folder: Path, rule: StopRule, check: Check | None = None) -> str:
    """Return which part of the stop rule the newest checkpoint fulfils, or ""."""
    _, checkpoint, _ = newest_of(folder, check)
    minutes = float(checkpoint.counters.get("seconds", 0.0)) / 60
    recent = checkpoint.counters.get("recent_scores", [])
    score = float(checkpoint.counters.get("score") or 0.0)
    if rule.steps is not None and checkpoint.steps >= rule.steps:
        return f"{checkpoint.steps:,} steps of {rule.steps:,}"
    if rule.minutes is not None and minutes >= rule.minutes:
        return f"{minutes:.1f} minutes of {rule.minutes:g}"
    if rule.until_score is not None and len(recent) == WINDOW and score >= rule.until_score:
        return f"score {score:.2f} of {rule.until_score:.7g}"
    _, evaluated, *whole = checkpoint.counters.get("evaluated") or (0, -math.inf)
    if all(whole) and rule.is_met_by(evaluated):
        return f"evaluated score {evaluated:.2f} of {rule.until_evaluated:.7g}"
    return ""


def has_checkpoint(folder: Path) -> bool:
    """Return whether a run has anything that it could go on with."""
    return bool(list_checkpoints(folder / CHECKPOINTS))


Points = Sequence[tuple[float, float]]
"""(seconds, score), oldest first."""

LATELY = 1 / 3
"""Share of the time so far over which the trend of a score is taken …"""

LEAST_SECONDS = 20.0
"""… but at least so many seconds."""

LONGEST = 100 * 3600.0
"""A score that would be reached later than in so many seconds is not in sight."""


class Ending(NamedTuple):
    """How near one stop rule is."""

    what: str  # completes "43 % of …"
    share: float  # 0 to 1
    left: float | None  # seconds until it holds; None: there is no telling
    sure: bool  # the rule is one of steps or time, which come for certain


def endings(
    status: Status, stop: StopRule, rate: float, evaluations: Points = (), scores: Points = ()
) -> list[Ending]:
    """Return how near each rule of a run is, the one that is expected first before the others.

    A score is expected where its trend of late leads to.

    Args:
        status: of the run.
        stop: its rules.
        rate: steps per second.
        evaluations: means of the evaluator, by the seconds when they were told.
        scores: means of the newest games, by the seconds of the run.
    """
    found = []
    if stop.steps is not None:
        left = max(stop.steps - status.steps, 0) / rate if rate > 0 else None
        share = min(status.steps / stop.steps, 1.0)
        found.append(Ending(f"{stop.steps:,} steps", share, left, True))
    if stop.minutes is not None:
        end = 60 * stop.minutes
        left = max(end - status.seconds, 0.0)
        what = f"{stop.minutes:g} minute{'s' * (stop.minutes != 1)}"
        found.append(Ending(what, min(status.seconds / end, 1.0), left, True))
    if stop.until_score is not None:
        points = scores if status.games >= WINDOW else ()
        found.append(_of_score("a score of", points, stop.until_score))
    if isinstance(stop.until_evaluated, float | int):
        found.append(_of_score("an evaluated score of", evaluations, stop.until_evaluated))
    return sorted(found, key=lambda one: (one.left is None, one.left or 0.0, not one.sure))


def _of_score(what: str, points: Points, goal: float) -> Ending:
    """Return how near a score is to its goal, and when it will be there if it goes on like that."""
    what = f"the way to {what} {goal:.7g}"
    if not points:
        return Ending(what, 0.0, None, False)
    now, low = points[-1][1], min(score for _, score in points)
    share = min(max((now - low) / (goal - low), 0.0), 1.0) if goal > low else 1.0
    slope = trend(points)
    left = max(goal - now, 0.0) / slope if slope > 0 else None
    return Ending(what, share, left if left is not None and left < LONGEST else None, False)


def trend(points: Points) -> float:
    """Return the rise of a score in a second of late; 0 if there are too few points."""
    last = points[-1][0]
    since = last - max(LATELY * last, LEAST_SECONDS)
    recent = [point for point in points if point[0] >= since]
    half = len(recent) // 2
    if half < 1:
        return 0.0
    halves = (zip(*part, strict=True) for part in (recent[:half], recent[half:]))
    (t1, early), (t2, late) = (map(fmean, half) for half in halves)
    return (late - early) / (t2 - t1) if t2 > t1 else 0.0


def progress(found: Sequence[Ending]) -> str:
    """Return how much is done by the rule that will end the run; "" without rules."""
    return f"{100 * found[0].share:.0f} % of {found[0].what}" if found else ""


def time_left(found: Sequence[Ending]) -> str:
    """Return the time until the run ends in words, such as "about 1:10 left, at most 4:58"."""
    if not found or found[0].left is None:
        return ""
    first = found[0]
    longest = min((one.left for one in found if one.sure and one.left is not None), default=None)
    if first.sure:
        sooner = any(not one.sure for one in found)
        return f"{'at most ' if sooner else ''}{clock(first.left)} left"
    most = "" if longest is None else f", at most {clock(longest)}"
    return f"about {clock(first.left)} left{most}"


def doing(status: Status, roles: Sequence[RoleState], bound: str) -> list[str]:
    """Return what bounds the speed, a stage, or what the roles do before anything was learned."""
    if status.version:
        _, mean, most = status.lag
        cores = status.cores
        return [
            f"speed limited by {PARTS.get(bound, bound)}",
            *([] if cores is None else [f"{cores:.1f} of {usable_cores()} cores busy"]),
            f"learns from games {mean:.1f} updates old (at most {most:.0f})",
        ]
    stages: dict[str, dict[str, None]] = {}
    for role in roles:
        kind = role.name.partition("-")[0]
        stages.setdefault(kind, {})[DOING.get(role.stage, role.stage)] = None
    said = [f"{kind}s: {' or '.join(found)}" for kind, found in stages.items()]
    said = said or ["waiting for the processes of the run"]
    return [" · ".join(["before the first update", *said])]


def unit(status: Status) -> str:
    """Return what is counted in a second: steps, or with workers the datapoints of all batches."""
    return "datapoints" if status.workers else "steps"


def about_workers(workers: WorkersStatus) -> list[str]:
    """Return how workers are doing, in a few phrases; shares are of all gradients so far."""
    traffic = workers.traffic
    gradients = max(traffic.counted + traffic.dropped + traffic.partial, 1)
    return [
        f"{workers.active} of {workers.all} workers active",
        f"{100 * traffic.dropped / gradients:.1f} % of gradients dropped",
        f"{100 * traffic.partial / gradients:.1f} % taken by some servers only",
        f"{workers.queue:,.1f} kept in the replay",
        f"{workers.waited:.2f} s of waiting in an update",
    ]


def number(score: float | None) -> str:
    """Return a score as text."""
    return "none" if score is None else f"{score:.2f}"
