"""``gelada train``: learn a game, show how it goes, leave an agent, a curve and a film."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gelada.cli.display import Display, Printer, earlier_curve
from gelada.cli.ending import clock
from gelada.cli.experiment_flags import (
    STOP_FLAGS,
    ExperimentFlags,
    Wanted,
    check_cluster_flags,
    resolve,
    resolve_again,
)
from gelada.cli.flags import check_run, print_json, value_of
from gelada.cli.interrupts import Interrupts
from gelada.cli.panel import number
from gelada.core.checkpoint import Check, Checkpoint, list_checkpoints, newest_checkpoint
from gelada.core.errors import GeladaError, RoleFailed, Stalled
from gelada.core.program import program
from gelada.envs.own import NoPictures
from gelada.roles.tracker import WINDOW, Status, StopRule
from gelada.runtime.api import Active
from gelada.runtime.devices import Devices, place
from gelada.runtime.groups import Cluster
from gelada.training.config import check_of, read_config
from gelada.training.experiment import Experiment
from gelada.training.faults import check_faults, parse_faults
from gelada.training.limits import check_limits
from gelada.training.run import Result, train
from gelada.training.run_folder import check_new, free_folder

FINAL_GAMES = 50
"""Full games of the evaluation at the end."""

PICTURES = {
    "the learning curve": "curve.png",
    "the film": "film.mp4",
    "the reconstructions": "reconstruction.png",
}
"""Files of a run that people look at, by what the last lines call them."""


@dataclass(frozen=True)
class Train(ExperimentFlags):
    """Learn a game from the screen. Ctrl-C saves the run; --resume continues it."""

    out: Path | None = None
    """Folder of the run; must be new or empty (default: runs/NAME-1, or the next free number)."""
    resume: Path | None = None
    """Continue the run in this folder from its newest complete checkpoint."""
    on: Literal["threads", "ray"] = "threads"
    """Run the roles on threads of this process, or in processes of a Ray cluster."""
    devices: Devices = field(default_factory=Devices)
    cluster: Cluster = field(default_factory=Cluster)
    faults: str = ""
    """Faults to inject, for experiments: compute=50ms,straggler=500ms,delay=4,link=10MB with
    workers; also kill=worker:30s,stop=server:45s with --on ray."""
    finish: bool = True
    """At the end, play 50 games for the score, draw the curve and film a game."""
    json: bool = False
    """Print one JSON object about the run on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    resumed = resumed_run(args)
    if resumed is None:
        wanted = resolve(Train, "train", args)
        folder, name = wanted.flags.out or free_folder(wanted.name), wanted.name
    else:
        check_run(resumed)
        config = read_config(resumed)
        wanted = resolve_again(Train, "train", args, config.experiment)
        folder, name = resumed, config.name
    faults = parse_faults(wanted.flags.faults)
    check_faults(faults, wanted.experiment, processes=wanted.flags.on == "ray")
    check_cluster_flags(wanted.flags.cluster, wanted.flags.on)
    place(wanted.flags.devices, on_ray=wanted.flags.on == "ray")
    if resumed and wanted.flags.out:
        raise GeladaError(
            f"--out {wanted.flags.out}: has an effect only in a new run; --resume goes on in "
            "the run's own folder"
        )
    printer = Printer(to_stderr=wanted.flags.json)
    if wanted.note:
        printer.line(wanted.note)
    if resumed and (over := _over(folder, wanted.experiment.stop)):
        printer.line(f"{folder} is past its stop rule: {over}; to go on, give {STOP_FLAGS}")
        if wanted.flags.json:
            print_json({"folder": str(folder), "stopped": "before"})
        return 0
    with Interrupts(say=printer.line) as interrupts:
        return _train(wanted, folder, name, printer, interrupts)


def resumed_run(args: Sequence[str]) -> Path | None:
    """Return the folder after --resume, or None."""
    folder = value_of("--resume", args)
    return Path(folder) if folder else None


def already_over(folder: Path, rule: StopRule, check: Check | None = None) -> str:
    """Return which part of the stop rule the newest checkpoint fulfils, or ""."""
    _, checkpoint, _ = newest_checkpoint(folder / "checkpoints", check)
    minutes = float(checkpoint.counters.get("seconds", 0.0)) / 60
    recent = checkpoint.counters.get("recent_scores", [])
    score = float(checkpoint.counters.get("score") or 0.0)
    if rule.steps is not None and checkpoint.steps >= rule.steps:
        return f"{checkpoint.steps:,} steps of {rule.steps:,}"
    if rule.minutes is not None and minutes >= rule.minutes:
        return f"{minutes:.1f} minutes of {rule.minutes:g}"
    if rule.until_score is not None and len(recent) == WINDOW and score >= rule.until_score:
        return f"score {score:.2f} of {rule.until_score:g}"
    return ""


def process_start() -> float:
    """Return `time.monotonic` at this process's start (now, where the system does not say)."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.monotonic() - age
    except (OSError, AttributeError):
        return time.monotonic()


def _train(
    wanted: Wanted, folder: Path, name: str, printer: Printer, interrupts: Interrupts
) -> int:
    """Train, then finish; a signal ends either in good order."""
    result = _learn(wanted, folder, name, printer, interrupts)
    status, stopped = result.status, bool(interrupts.signal)
    if stopped and _has_checkpoint(folder):  # half an update counts already, but cannot be kept
        status.steps = _newest(folder).steps
    summary: dict[str, Any] = {
        "folder": str(folder),
        "stopped": interrupts.name if stopped else "by its rule",
        "steps": status.steps,
        "seconds": round(status.seconds, 3),
        "games": status.games,
        "score": status.score,
        "best": status.best,
    }
    if stopped:
        printer.line(how_to_resume(folder, status.steps, interrupts.name, result.saved))
    else:
        printer.line(how_it_went(status))
        if wanted.flags.finish:
            try:
                here = "cpu" if wanted.flags.on == "ray" else wanted.flags.devices.device
                summary |= finish(folder, printer, here)
            except KeyboardInterrupt:
                stopped = True
                printer.line("stopped; training was over and is saved")
        for line in where_everything_is(folder, status.steps):
            printer.line(line)
    if wanted.flags.json:
        print_json(summary)
    return interrupts.exit_code if stopped else 0


def _learn(
    wanted: Wanted, folder: Path, name: str, printer: Printer, interrupts: Interrupts
) -> Result:
    """Train with the display on; signals wait for the edges where nothing is lost."""
    resume, experiment = wanted.flags.resume is not None, wanted.experiment
    faults = parse_faults(wanted.flags.faults)
    cluster = wanted.flags.cluster if wanted.flags.on == "ray" else None
    earlier = earlier_curve(folder) if resume else ()
    display = Display(f"{name} · {folder}", experiment.stop, printer, earlier)

    def watch(status: Status, active: Sequence[Active]) -> None:
        display.watch(status, active)
        interrupts.raise_if_any()

    if not resume:
        check_limits(experiment, cluster, place(wanted.flags.devices, cluster is not None))
        check_new(folder)
    interrupts.gentle = True
    with display:
        printer.line(opening(experiment, folder, resume) + where_in_words(wanted.flags))
        try:
            result = train(
                experiment,
                folder,
                name,
                resume,
                watch,
                printer.line,
                began=process_start(),
                faults=faults,
                cluster=cluster,
                devices=wanted.flags.devices,
            )
        except (Stalled, RoleFailed) as error:
            again = f"; go on with: {program()} train --resume {folder}"
            raise type(error)(f"{error}{again if _has_checkpoint(folder) else ''}") from error
    interrupts.gentle = False
    return result


def opening(experiment: Experiment, folder: Path, resumed: bool) -> str:
    """Return the first line: what is about to happen."""
    what = "going on with" if resumed else f"learning {experiment.games.game} into"
    return f"{what} {folder}: {shape_in_words(experiment)}; {stop_in_words(experiment.stop)}"


def where_in_words(flags: Train) -> str:
    """Return what a run on Ray waits for first; "" on threads."""
    if flags.on != "ray":
        return ""
    address = flags.cluster.joined
    if address:
        return f"; first it joins the Ray cluster at {address}"
    return "; first it starts Ray on this machine, which takes some seconds"


def shape_in_words(experiment: Experiment) -> str:
    """Return who learns as a phrase."""
    shape, memory = experiment.shape, experiment.replay
    players = f"{shape.actors} actors x {shape.games} games"
    kept = f", replay buffer of {memory.capacity:,} steps" if memory.capacity else ""
    if shape.replicas > 1:
        return f"{shape.replicas} learners that step alike, each with {players}"
    if not shape.apart:
        return f"{players}, 1 learner{kept}"
    if shape.asynchronous:
        rule = f"asynchronous, at most {shape.max_staleness} versions old"
    else:
        rule = f"{shape.gradients} gradients a step, {shape.learning - shape.gradients} backups"
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


def how_to_resume(folder: Path, steps: int, why: str, saved: bool = True) -> str:
    """Return the line after an interruption; ``saved``: nothing that was learned is lost."""
    if not _has_checkpoint(folder):
        return f"stopped by {why} before anything was learned: there is nothing to go on with"
    what = "all saved" if saved else "what was learned after that could not be saved"
    again = f"{program()} train --resume {folder}"
    return f"stopped by {why} at {steps:,} steps, {what}; go on with: {again}"


def finish(folder: Path, printer: Printer, device: str = "cpu") -> dict[str, Any]:
    """Evaluate, film and draw; return what a summary says about it."""
    from gelada.evaluation.agent import load
    from gelada.evaluation.curve import draw_curve
    from gelada.evaluation.evaluator import evaluate
    from gelada.evaluation.video import record

    agent = load(folder, device=device)
    with printer.progress(f"playing {FINAL_GAMES} games", "games") as progress:
        evaluation = evaluate(agent, "training", FINAL_GAMES, progress=progress)
    if evaluation.interrupted:  # Ctrl-C
        raise KeyboardInterrupt
    evaluation.save(folder)
    for line in evaluation.lines():
        printer.line(line)
    film: Path | None = None
    try:
        with printer.progress("filming a game", "s") as progress:
            film = record(agent, folder / "film.mp4", progress=progress).path
    except NoPictures as error:
        printer.line(str(error))
    curve = draw_curve(folder)
    said = {"evaluation": evaluation.as_dict(), "curve": str(curve)}
    return said | ({"film": str(film)} if film else {})


def where_everything_is(folder: Path, steps: int) -> list[str]:
    """Return the last lines: what is where, and what to do next."""
    gelada = program()
    rows = [("everything is in", str(folder))]
    rows += [
        (what, str(folder / file)) for what, file in PICTURES.items() if (folder / file).is_file()
    ]
    rows += [
        ("watch it again", f"{gelada} record {folder}"),
        ("evaluate it", f"{gelada} eval {folder}"),
        ("learn on", f"{gelada} train --resume {folder} --steps {2 * steps}"),
    ]
    return [f"{what:<20}{how}" for what, how in rows]


def _over(folder: Path, rule: StopRule) -> str:
    return already_over(folder, rule, check_of(read_config(folder)))


def _newest(folder: Path) -> Checkpoint:
    """Return the newest checkpoint of a run."""
    return newest_checkpoint(folder / "checkpoints", check_of(read_config(folder)))[1]


def _has_checkpoint(folder: Path) -> bool:
    return bool(list_checkpoints(folder / "checkpoints"))
