"""``colobus train``: learn a game, show how it goes, leave an agent, a curve and a film."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from colobus.cli.display import Display, Printer, earlier_curve
from colobus.cli.experiment_flags import (
    STOP_FLAGS,
    ExperimentFlags,
    Wanted,
    cluster_of,
    resolve,
    resolve_again,
)
from colobus.cli.flags import check_run, print_json, value_of
from colobus.cli.interrupts import Interrupts
from colobus.core import trust
from colobus.core.errors import ColobusError, RoleFailed, Stalled
from colobus.core.fields import Range, given
from colobus.core.functions import NoPictures
from colobus.experiment.settings import flag
from colobus.runs.config import check_of, read_config
from colobus.runs.folder import CURVE, FILM, check_new, claimed, free_folder, slug
from colobus.runtime.devices import Devices, place
from colobus.runtime.groups import Cluster, Hosts
from colobus.training.run import Result, train
from colobus.training.runtimes import RuntimeName, launcher
from colobus.training.start import last_like, may_go_on
from colobus.training.tracking import TrackerName, tracking
from colobus.training.warm import read_weights
from colobus.training.words import (
    already_over,
    has_checkpoint,
    how_it_stopped,
    how_it_went,
    how_to_go_on,
    opening,
    where_everything_is,
    why_less,
)

FINAL_GAMES = 50
"""Full games of the evaluation at the end."""


@dataclass(frozen=True)
class Train(ExperimentFlags):
    """Learn a game from the screen. Ctrl-C saves the run; --resume continues it."""

    out: Path | None = None
    """Folder of the run; must be new or empty (default: runs/NAME-1, or the next free number)."""
    called: Annotated[str, tyro.conf.arg(name="name")] = ""
    """Name of the run, which its default folder has (default: the game or preset)."""
    resume: Path | None = None
    """Continue the run in this folder from its newest complete checkpoint."""
    resume_or_start: bool = False
    """Continue the run in --out (default: the last of runs/NAME-1, NAME-2 … with these settings),
    or begin it if there is nothing to go on from: give the same command again and again."""
    seeds: Annotated[int, Range(1, 1000)] = 1
    """Train so many times, one run after the other, with the seeds from --seed on; then write a
    report over all of them. The same command goes on where it stopped."""
    from_: Annotated[str, tyro.conf.arg(name="from")] = ""
    """Begin a new run with the weights of this one (its newest checkpoint, or the best if that is
    worse), of an exported folder or of zoo:NAME; network and frames are set as they are there."""
    on: RuntimeName = "threads"
    """Run the roles on threads of this process, in processes of a Ray cluster, or (virtual) in
    simulated time."""
    devices: Devices = field(default_factory=Devices)
    cluster: Cluster = field(default_factory=Cluster)
    hosts: Hosts = field(default_factory=Hosts)
    track: TrackerName = ""
    """Send settings, metrics and films to this experiment tracker by its own client; they stay on
    this machine unless its environment variables say otherwise (docs/tracking.md)."""
    finish: bool = True
    """At the end, play 50 games for the score, draw the curve and film a game."""
    json: bool = False
    """Print one JSON object about the run on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    printer = Printer(to_stderr="--json" in args)
    resumed, either = Path(run) if (run := value_of("--resume", args)) else None, False
    if resumed is None:
        wanted = resolve(Train, "train", args)
        flags = wanted.flags
        if flags.seeds > 1:
            return train_seeds(wanted, printer)
        either, name, own = flags.resume_or_start, wanted.name, called(wanted)
        usual = last_like(own, wanted.experiment, flags.from_) if either else free_folder(own)
        folder = flags.out or usual
        resumed = folder if either and may_go_on(folder, printer.line) else None
    if resumed is not None:
        check_run(resumed)
        config = read_config(resumed)
        if either and config.name != name:
            raise ColobusError(
                f"--out {folder}: is a run of {config.name}, not of {name}; name another folder"
            )
        if either:
            config.check_begun(folder, wanted.flags.from_)
        found = resolve_again(Train, "train", args, config.experiment, either)
        wanted = found._replace(flags=wanted.flags) if either else found  # with CPUs by --cores
        folder, name = resumed, config.name
    flags = wanted.flags
    cluster_of(flags)
    place(flags.devices, on_ray=flags.on == "ray")
    if resumed and not either:
        for name_of, value in (("out", flags.out), ("name", flags.called), ("from", flags.from_)):
            if value:
                raise ColobusError(
                    f"--{name_of} {value}: has an effect only in a new run; --resume goes on in "
                    "the run's own folder"
                )
    if flags.seeds > 1:
        raise ColobusError(
            f"--seeds {flags.seeds} with --resume: give the command that began them again"
        )
    if wanted.note:
        printer.line(wanted.note)
    if resumed and (over := already_over(folder, wanted.experiment.stop, check_of(config))):
        printer.line(f"{folder} is past its stop rule: {over}; to go on, give {STOP_FLAGS}")
        told: dict[str, Any] = {"folder": str(folder), "stopped": "before"}
        try:
            if flags.finish and not (folder / CURVE).exists():  # it was stopped there
                finish(folder, printer, told, flags)
        finally:  # what there is
            if flags.json:
                print_json(told)
        return 0
    weights = read_weights(flags.from_, printer.line) if flags.from_ and not resumed else None
    with (
        claimed(folder, free=not (flags.out or resumed)) as folder,
        Interrupts(say=printer.line) as interrupts,  # as long as a tracker may take to close
        tracking(flags.track, wanted.experiment, folder, printer.line) as callbacks,
    ):
        again = how_to_go_on(
            [*args, *trust.EVERYTHING], either or bool(resumed), folder, launched(flags)
        )
        more = {"callbacks": callbacks, "weights": weights}
        result = _learn(wanted, folder, name, bool(resumed), again, printer, interrupts, more)
        return _end(wanted, folder, again, result, printer, interrupts)


def called(wanted: Wanted) -> str:
    """Return what the folder of a run is called if it is not named itself."""
    own = wanted.flags.called
    if own and wanted.flags.out:
        raise ColobusError(f"--name {own} with --out: the folder has a name; leave one of them out")
    if own and not slug(own):
        raise ColobusError(f"--name {own}: must have a letter or a digit")
    return own or str(wanted.name)


def train_seeds(wanted: Wanted, printer: Printer) -> int:
    """Train with several seeds, evaluate each run, and report on all; return the exit code."""
    from colobus.cli.suite import run_suite
    from colobus.report.ledger import Suite

    flags, experiment = wanted.flags, wanted.experiment
    how: dict[str, Any] = {"on": flags.on, "devices": flags.devices, "track": flags.track}
    how["cluster"] = cluster_of(flags)
    place(flags.devices, on_ray=flags.on == "ray")
    if wanted.note:
        printer.line(wanted.note)
    if not flags.finish:
        raise ColobusError(f"--no-finish with --seeds {flags.seeds}: the table is of their games")
    usual = Path("runs") / f"{slug(called(wanted))}-seeds"
    suite = Suite(
        folder=flags.out or usual,
        games=(experiment.games.game,),
        seeds=flags.seeds,
        base=experiment,
        preset=wanted.name,
        protocol="training",
        episodes=FINAL_GAMES,
        first=experiment.seed,
        source=flags.from_,
    )
    if flags.from_:
        how["weights"] = read_weights(flags.from_, printer.line)
    return run_suite(suite, flags.json, report=True, **how)


def launched(flags: Train) -> list[str]:
    """Return the flags that say where the roles of a run are, as far as they were given."""
    words = ["--on", flags.on] if flags.on != "threads" else []
    words += ["--track", flags.track] if flags.track else []
    for group in (flags.devices, flags.cluster, flags.hosts):
        for name, value in vars(group).items():
            if value != getattr(type(group)(), name):
                words += given(flag(name), value).split(" ", 1)
    return words


def process_start() -> float:
    """Return `time.monotonic` at this process's start (now, where the system does not say)."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.monotonic() - age
    except (OSError, AttributeError):
        return time.monotonic()


def _end(
    wanted: Wanted,
    folder: Path,
    again: str,
    result: Result,
    printer: Printer,
    interrupts: Interrupts,
) -> int:
    """Finish a training that has ended, and say what is there; return the exit code."""
    failure: Exception | None = None
    status, stopped = result.status, bool(interrupts.signal)
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
        printer.line(how_it_stopped(folder, again, status.steps, interrupts.name, result.saved))
    else:
        printer.line(how_it_went(status))
        if wanted.flags.finish:
            try:
                finish(folder, printer, summary, wanted.flags)
            except KeyboardInterrupt:
                stopped = True
                printer.line("stopped; training was over and is saved")
            except (ColobusError, OSError) as error:  # what there is comes first
                failure = error
        for line in where_everything_is(folder, status.steps, launched(wanted.flags)):
            printer.line(line)
    if wanted.flags.json:
        print_json(summary)
    if failure:
        raise failure
    return interrupts.exit_code if stopped else 0


def _learn(
    wanted: Wanted,
    folder: Path,
    name: str,
    resume: bool,
    again: str,
    printer: Printer,
    interrupts: Interrupts,
    more: dict[str, Any],
) -> Result:
    """Train with the display on; signals wait for the edges where nothing is lost."""
    flags, experiment, cluster = wanted.flags, wanted.experiment, cluster_of(wanted.flags)
    title, earlier = f"{name} · {folder}", earlier_curve(folder)
    display = Display(title, experiment.stop, printer, earlier, interrupts.raise_if_any)
    launcher(flags.on, cluster).check(experiment, flags.devices, resume)
    if not resume:
        check_new(folder)
    interrupts.gentle = True
    with display:
        printer.line(opening(experiment, folder, resume, flags.on, cluster))
        try:
            result = train(
                experiment,
                folder,
                name,
                resume,
                display.watch,
                printer.line,
                began=process_start(),
                cluster=cluster,
                on=flags.on,
                devices=flags.devices,
                **more,
            )
        except (Stalled, RoleFailed) as error:
            said = f"; go on with: {again}" if has_checkpoint(folder) else ""
            raise type(error)(f"{error}{said}") from error
    interrupts.gentle = False
    return result


def finish(folder: Path, printer: Printer, summary: dict[str, Any], flags: Train) -> None:
    """Evaluate, film and draw; add each to the summary when it is there."""
    from colobus.evaluation.agent import load
    from colobus.evaluation.evaluator import evaluate
    from colobus.evaluation.films.player import record
    from colobus.report.plots import draw_curve

    (folder / CURVE).unlink(missing_ok=True)  # drawn last: without it a resume does all of this
    device = "cpu" if flags.on == "ray" else flags.devices.device  # Ray's GPUs may be elsewhere
    agent = load(folder, device=device, log=printer.line)
    with printer.progress(f"playing {FINAL_GAMES} games", "games") as progress:
        evaluation = evaluate(agent, "training", FINAL_GAMES, progress=progress)
    if evaluation.interrupted:  # Ctrl-C
        raise KeyboardInterrupt
    for line in evaluation.lines():
        printer.line(line)
    if why := why_less(summary.get("score"), evaluation.mean, evaluation.standard_error):
        printer.line(why)
    summary["evaluation"] = evaluation.as_dict()
    evaluation.save(folder)
    try:
        with printer.progress("filming a game", "s") as progress:
            summary["film"] = str(record(agent, folder / FILM, progress=progress).path)
    except NoPictures as error:
        printer.line(str(error))
    except ColobusError:  # a film that failed is not tried again
        summary["curve"] = str(draw_curve(folder))
        raise
    summary["curve"] = str(draw_curve(folder))
