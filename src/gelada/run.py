"""Builds the circle, places it and watches over it: the file to read first.

    Actor ──Trajectory──> Replay ──Batch──> Learner ──Gradient──> ParameterServer ──Params──> Actor

`draw` makes the plan of the roles, `train` places it on threads, waits for the end and leaves a
run's folder behind: config.json, metrics.jsonl, tensorboard/, checkpoints/.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gelada.checks import check
from gelada.config import Config, describe_machine, read_config, write_config
from gelada.envs.games import Games, make_games
from gelada.errors import CannotWrite, GeladaError, Stalled
from gelada.ops.flat import FlatParameters
from gelada.place.plan import Active, Plan
from gelada.place.threads import Threads
from gelada.presets import Experiment
from gelada.roles.actor import Actor, Pace
from gelada.roles.learner import Learner
from gelada.roles.parameter_server import KEPT, ParameterServer, Quorum
from gelada.roles.replay import Fifo, Replay, Rounds
from gelada.roles.tracker import Status, Tracker
from gelada.start import Start, begin, begin_again, make_network, open_games

DETERMINISTIC_EVERY = 10
"""Versions between metrics lines in the deterministic mode."""


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    folder: Path
    status: Status
    interrupted: bool


Watch = Callable[[Status, Sequence[Active]], None]


def draw(
    experiment: Experiment,
    start: Start,
    folder: Path | None,
    began: float | None = None,
    patience: float = 600.0,
    games: Sequence[Games] | None = None,
) -> Plan:
    """Draw the circle: actors, a first-in-first-out replay, a learner, servers in its process.

    Args:
        experiment: all settings.
        start: where the run begins.
        folder: of the run; None writes nothing.
        began: `time.monotonic` at the run's beginning.
        patience: seconds that a role waits for another (0: never, for the inline place).
        games: already loaded, one vector for each actor; the actors load their own by default.
    """
    shape, seed = experiment.shape, experiment.seed
    if experiment.deterministic and shape.ahead >= KEPT:
        raise GeladaError(
            f"--ahead {shape.ahead} with --deterministic: servers keep {KEPT} versions; "
            f"use at most {KEPT - 1}"
        )
    net = make_network(experiment, start)
    flat = FlatParameters(net)
    if start.parameters:
        flat.layout.fill(flat.values, start.parameters)
    plan = Plan()
    tracker = _draw_tracker(plan, experiment, start, flat, folder, began)
    select = Rounds(shape.actors) if experiment.deterministic else Fifo(shape.actors)
    capacity = shape.actors * (shape.ahead + 2)
    replay = plan.add("replay", "main", Replay, select, capacity, patience)
    servers = _draw_servers(plan, experiment, start, flat, patience)
    for index in range(shape.actors):
        plan.add(
            f"actor-{index}",
            "main",
            Actor,
            index,
            seed,
            lambda seeds: make_games(experiment.games, seeds),
            shape.games,
            shape.length,
            net,
            experiment.algorithm,
            servers,
            replay,
            tracker,
            Pace(shape.ahead, exactly=experiment.deterministic),
            games[index] if games else None,
        )
    plan.add(
        "learner-0",
        "main",
        Learner,
        0,
        seed,
        flat,
        experiment.algorithm,
        servers,
        replay,
        tracker,
        start.aux or experiment.algorithm.start(),
        start.version,
        start.steps,
    )
    return plan


def _draw_tracker(
    plan: Plan,
    experiment: Experiment,
    start: Start,
    flat: FlatParameters,
    folder: Path | None,
    began: float | None,
) -> Tracker:
    """Draw the tracker; every checkpoint of it will hold the input statistics too."""
    statistics = {
        "input/mean": torch.from_numpy(start.statistics.mean),
        "input/deviation": torch.from_numpy(start.statistics.deviation),
    }
    return plan.add(
        "tracker",
        "main",
        Tracker,
        folder,
        experiment.tracker,
        experiment.stop,
        flat.layout,
        statistics,
        began=began,
        counters=start.counters,
        every=DETERMINISTIC_EVERY if experiment.deterministic else None,
        first_version=start.version.number,
    )


def _draw_servers(
    plan: Plan, experiment: Experiment, start: Start, flat: FlatParameters, patience: float
) -> list[ParameterServer]:
    """Draw the parameter servers, each over its slice of the learner's own vector."""
    quorum = Quorum(1)
    quorum.check(learners=1)
    return [
        plan.add(
            f"server-{i}",
            "main",
            ParameterServer,
            flat.values[cut],
            experiment.optimizer,
            quorum,
            start.version,
            patience,
            {name: _slice_of(flat, cut, tensors) for name, tensors in _by_name(start.optimizer)},
        )
        for i, cut in enumerate(flat.layout.cut(experiment.shape.servers))
    ]


def train(
    experiment: Experiment,
    folder: Path,
    name: str = "",
    resume: bool = False,
    watch: Watch | None = None,
    log: Callable[[str], None] = print,
    began: float | None = None,
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
        games = open_games(experiment)
        start = begin(experiment, games)
        about = {**describe_machine(), "precision": start.precision}
        write_config(folder, Config(name, experiment, start.actions, about))
    place = Threads(
        draw(experiment, start, folder, began, games=games), experiment.shape.deadline, log
    )
    tracker: Tracker = place.roles["tracker"]
    learner: Learner = place.roles["learner-0"]
    interrupted = stuck = False
    place.start()
    try:
        while not place.wait(0.5):
            place.check()
            if failure := tracker.failure():
                raise CannotWrite(_disk_line(folder, failure))
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
        if learner.name in hung and not stuck:  # a round of a large network takes longer
            hung = place.stop(patience=60.0)
        failure = _save_last(learner, tracker, learner.name in hung)
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


def _save_last(learner: Learner, tracker: Tracker, hung: bool) -> OSError | None:
    """Save the newest version if the learner can be; return what went wrong with writing."""
    if not hung and learner.clock.steps and learner.is_sound():
        learner.save()
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


def _by_name(tensors: dict[str, torch.Tensor]) -> list[tuple[str, dict[str, torch.Tensor]]]:
    """Group "mean/torso.0.weight" and the like by their first part; scalars have no second."""
    groups: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, parameter = name.partition("/")
        groups.setdefault(kind, {})[parameter] = tensor
    return list(groups.items())


def _slice_of(flat: FlatParameters, cut: slice, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return one server's part of an optimizer state that is stored by parameter name."""
    if "" in tensors:
        return tensors[""]
    whole = torch.zeros_like(flat.values)
    flat.layout.fill(whole, tensors)
    return whole[cut]
