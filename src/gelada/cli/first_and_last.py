"""The first and last lines of ``gelada train``: what will happen, how it went, how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gelada.cli.panel import number
from gelada.core.checkpoint import list_checkpoints
from gelada.core.fields import given
from gelada.core.program import program
from gelada.core.timing import clock
from gelada.experiment.settings import Experiment, flag
from gelada.roles.tracker import WINDOW, Status, StopRule
from gelada.runs.folder import CHECKPOINTS, CURVE, FILM, RECONSTRUCTION
from gelada.runtime.devices import Devices
from gelada.runtime.groups import Cluster

PICTURES = {
    "the learning curve": CURVE,
    "the film": FILM,
    "the reconstructions": RECONSTRUCTION,
}
"""Files of a run that people look at, by what the last lines call them."""


def opening(experiment: Experiment, folder: Path, resumed: bool) -> str:
    """Return the first line: what is about to happen."""
    what = "going on with" if resumed else f"learning {experiment.games.game} into"
    return f"{what} {folder}: {shape_in_words(experiment)}; {stop_in_words(experiment.stop)}"


def where_in_words(on: str, cluster: Cluster) -> str:
    """Return what a run on Ray waits for first; "" on threads."""
    if on != "ray":
        return ""
    if cluster.joined:
        return f"; first it joins the Ray cluster at {cluster.joined}"
    return "; first it starts Ray on this machine, which takes some seconds"


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
        parts.append(f"score {rule.until_score:g} (mean of {WINDOW} games)")
    if rule.steps is not None:
        parts.append(f"{rule.steps:,} steps")
    if rule.minutes is not None:
        parts.append(f"{rule.minutes:g} min")
    if rule.until_evaluated is not None:
        goal = rule.until_evaluated
        parts.append(f"evaluated score {goal if isinstance(goal, str) else f'{goal:g}'}")
    return f"until {' or '.join(parts)}" if parts else "until Ctrl-C"


def how_it_went(status: Status) -> str:
    """Return the line after a run that has ended by itself."""
    done = f"{status.steps:,} steps in {clock(status.seconds)}"
    if status.score is None:
        return f"{done}; no game was over yet, so there is no score"
    count = min(status.games, WINDOW)
    games = "game" if count == 1 else f"{count} games"
    return f"{done}; mean score of the last {games}: {number(status.score)}"


def how_to_go_on(args: Sequence[str], resumed: bool, folder: Path, launch: Sequence[str]) -> str:
    """Return the command that goes on with a run after an interruption.

    A run's config.json has neither where it ran nor the stop rule of a later start, so they are
    given again.

    Args:
        args: words after ``gelada train``.
        resumed: whether they go on with a run.
        folder: of the run.
        launch: `launch_flags` of a new run.
    """
    words = args if resumed else ["--resume", str(folder), *launch]
    return f"{program()} train {shlex.join(words)}"


def launch_flags(on: str, devices: Devices, cluster: Cluster) -> list[str]:
    """Return the flags that say where the roles of a run are, as far as they were given."""
    words = ["--on", on] if on != "threads" else []
    for group, usual in ((devices, Devices()), (cluster, Cluster())):
        for name, value in vars(group).items():
            if value != getattr(usual, name):
                words += given(flag(name), value).split(" ", 1)
    return words


def how_it_stopped(folder: Path, again: str, steps: int, why: str, saved: bool = True) -> str:
    """Return the line after an interruption.

    Args:
        folder: of the run.
        again: command that goes on with it.
        steps: that are kept.
        why: what stopped it.
        saved: whether nothing that was learned is lost.
    """
    if not has_checkpoint(folder):
        return f"stopped by {why} before anything was learned: there is nothing to go on with"
    what = "all saved" if saved else "what was learned after that could not be saved"
    return f"stopped by {why} at {steps:,} steps, {what}; go on with: {again}"


def where_everything_is(folder: Path, steps: int, launch: Sequence[str] = ()) -> list[str]:
    """Return the last lines: what is where, and what to do next.

    Args:
        folder: of the run.
        steps: that it has learned.
        launch: flags with which it learns on; see `launch_flags`.
    """
    gelada, on = program(), shlex.join(["--steps", str(2 * steps), *launch])
    rows = [("everything is in", str(folder))]
    rows += [
        (what, str(folder / file)) for what, file in PICTURES.items() if (folder / file).is_file()
    ]
    run = shlex.quote(str(folder))
    rows += [
        ("watch it again", f"{gelada} record {run}"),
        ("evaluate it", f"{gelada} eval {run}"),
        ("learn on", f"{gelada} train --resume {run} {on}"),
    ]
    return [f"{what:<20}{how}" for what, how in rows]


def has_checkpoint(folder: Path) -> bool:
    """Return whether a run has anything that it could go on with."""
    return bool(list_checkpoints(folder / CHECKPOINTS))
