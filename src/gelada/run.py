"""Builds the circle, places it and watches over it: the file to read first.

    Actor ──Trajectory──> Replay ──Batch──> Learner ──Gradient──> ParameterServer ──Params──> Actor

`draw` makes the plan of the roles, `train` places it on threads, waits for the end and leaves a
run's folder behind: config.json, metrics.jsonl, tensorboard/, checkpoints/.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gelada.chaos import NONE, Chaos
from gelada.checks import check
from gelada.config import Config, describe_machine, read_config, write_config
from gelada.draw import draw
from gelada.envs.games import Games
from gelada.errors import CannotWrite, GeladaError, Stalled
from gelada.follow import Followers
from gelada.place.plan import Active
from gelada.place.threads import Threads
from gelada.presets import Experiment
from gelada.roles.tracker import Status, Tracker
from gelada.saving import LearnerSaver, SliceSaver
from gelada.start import Start, begin, begin_again, open_games


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    folder: Path
    status: Status
    interrupted: bool


Watch = Callable[[Status, Sequence[Active]], None]


def train(
    experiment: Experiment,
    folder: Path,
    name: str = "",
    resume: bool = False,
    watch: Watch | None = None,
    log: Callable[[str], None] = print,
    began: float | None = None,
    chaos: Chaos = NONE,
) -> Result:
    """Train on threads in this process, until a stop rule holds, a role fails or Ctrl-C.

    Args:
        experiment: all settings (with ``resume``: those of the run, stop rule perhaps changed).
        folder: of the run; must be new or empty unless ``resume``.
        name: game or preset as the user gave it.
        resume: go on from the newest complete checkpoint in ``folder``.
        watch: called about twice a second with the status and the active roles.
        log: takes lines for the user.
        began: `time.monotonic` at the process's start, if that is to count.
        chaos: trouble on purpose, for experiments.

    Raises:
        GeladaError: if a setting is out of range, the folder is not empty, a role failed
            or hung, or a disk is full. What was learned until then is in the newest checkpoint.
    """
    began = time.monotonic() if began is None else began
    check(experiment)
    torch.set_num_threads(1)
    games: list[Games] | None = None
    if resume:
        config = read_config(folder)
        start = begin_again(folder, config, log)
    else:
        make_folder(folder)
        games = open_games(experiment, 1 if chaos.compute else None)  # sleepers do not play
        start = begin(experiment, games)
        about = {**describe_machine(), "precision": start.precision, "chaos": str(chaos)}
        write_config(folder, Config(name, experiment, start.actions, about))
    plan = draw(experiment, start, folder, began, games=games, chaos=chaos)
    place = Threads(plan, experiment.shape.deadline, log)
    tracker: Tracker = place.roles["tracker"]
    saver = _saver(place, experiment, start, log)
    interrupted = stuck = False
    good_enough = threading.Event()

    def hear(news: dict[str, Any]) -> None:
        if news["kind"] == "evaluation" and tracker.evaluated(news["mean"]):
            good_enough.set()

    place.start()
    try:
        beside = experiment.beside
        with Followers(
            folder, beside.evaluator, beside.recorder, beside.record_length, hear
        ) as followers:
            while not place.wait(0.5) and not good_enough.is_set():
                place.check()
                if failure := tracker.failure():
                    raise CannotWrite(_disk_line(folder, failure))
                saver.look()
                if line := followers.dead():
                    log(line)
                if watch:
                    watch(tracker.status(), place.active)
            place.check()
    except KeyboardInterrupt:
        interrupted = True
    except Stalled:
        stuck = True
        raise
    finally:
        hung = place.stop(patience=5.0)
        if saver.needs(hung) and not stuck:  # a round of a large network takes longer
            hung = place.stop(patience=60.0)
        failure = _save_last(saver, tracker, hung)
    if failure:
        raise CannotWrite(_disk_line(folder, failure))
    if hung and not interrupted:
        raise Stalled(f"{', '.join(hung)} did not stop; everything learned is saved")
    return Result(folder, tracker.status(), interrupted)


def make_folder(folder: Path) -> None:
    """Make a run's folder.

    Raises:
        GeladaError: if it is a file or not empty: nothing of an earlier run is ever overwritten.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise GeladaError(
                f"--out {folder}: the folder is not empty; name a new one, or go on with "
                f"--resume {folder}"
            )
    except (NotADirectoryError, FileExistsError):
        raise GeladaError(f"--out {folder}: is a file; name a folder") from None
    except OSError as error:
        raise GeladaError(
            f"--out {folder}: cannot be made: {error.strerror}; name another folder"
        ) from None


def _saver(
    place: Threads, experiment: Experiment, start: Start, log: Callable[[str], None]
) -> LearnerSaver | SliceSaver:
    """Return who saves: the learner between its rounds, or whoever watches over the servers."""
    tracker = place.roles["tracker"]
    if not experiment.shape.bundles:
        return LearnerSaver(place.roles["learner-0"])
    servers = [role for name, role in place.roles.items() if name.startswith("server-")]
    mixed = experiment.shape.asynchronous
    return SliceSaver(servers, tracker, experiment.algorithm, start.version, mixed, log)


def _save_last(
    saver: LearnerSaver | SliceSaver, tracker: Tracker, hung: Sequence[str]
) -> OSError | None:
    """Save the newest version if that can be; return what went wrong with writing."""
    saver.last(hung)
    try:
        tracker.finish()
    except OSError as error:
        return error
    return None


def _disk_line(folder: Path, error: OSError) -> str:
    return (
        f"cannot write to {folder}: {error.strerror}; the newest complete checkpoint is kept: make "
        f"room and go on with --resume {folder}"
    )
