"""Builds the circle, places it and watches over it: the file to read first.

    Actor ──Trajectory──> Replay ──Batch──> Learner ──Gradient──> ParameterServer ──Params──> Actor

`draw` makes the plan of the roles, `train` places it on threads or on Ray, waits for the end and
leaves a run's folder behind: config.json, metrics.jsonl, tensorboard/, checkpoints/.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gelada.core.checkpoint import list_checkpoints
from gelada.core.errors import CannotWrite, Closed, GeladaError, Lost, Stalled
from gelada.core.files import Events
from gelada.core.settings import check as check_fields
from gelada.envs.api import Games
from gelada.roles.tracker import Status, Tracker
from gelada.runtime.graph import Active
from gelada.runtime.groups import Cluster
from gelada.runtime.system import (
    available_memory,
    check_memory,
    describe_machine,
    keep_freed_memory,
)
from gelada.runtime.threads import Threads
from gelada.training.buffers import buffer_bytes
from gelada.training.config import Config, read_config, write_config
from gelada.training.experiment import Experiment, flag
from gelada.training.faults import NONE, Faults, FaultSchedule
from gelada.training.saving import LearnerSaver, SliceSaver, load_stores, save_stores
from gelada.training.sidecars import Followers
from gelada.training.start import Start, begin, begin_again, open_games
from gelada.training.topology import draw
from gelada.training.validate import check

if TYPE_CHECKING:
    from gelada.runtime.ray.runtime import Ray


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
    faults: Faults = NONE,
    cluster: Cluster | None = None,
) -> Result:
    """Train until a stop rule holds, a role fails or Ctrl-C.

    Args:
        experiment: all settings (with ``resume``: those of the run, stop rule perhaps changed).
        folder: of the run; must be new or empty unless ``resume``.
        name: game or preset as the user gave it.
        resume: go on from the newest complete checkpoint in ``folder``.
        watch: called about twice a second with the status and the active roles.
        log: takes lines for the user.
        began: `time.monotonic` at the process's start, if that is to count.
        faults: trouble on purpose, for experiments.
        cluster: live in processes of a Ray cluster (None: on threads of this process).

    Raises:
        GeladaError: if a setting is out of range, the folder is not empty, a role failed
            or hung, or a disk is full. What was learned until then is in the newest checkpoint.
    """
    began = time.monotonic() if began is None else began
    check(experiment)
    if cluster is not None:
        check_fields(cluster, flag)
    keep_freed_memory()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        if cluster is not None:
            from gelada.runtime.ray import prepare

            prepare(cluster.address)
            try:
                from gelada.runtime.ray.session import connected
            except ImportError as error:
                raise GeladaError(
                    f"--on ray: {error}; install it with: pip install 'gelada-rl[cluster]'"
                ) from None
            stack.enter_context(connected(cluster))
        games: list[Games] | None = None
        if resume:
            config = read_config(folder)
            start = begin_again(folder, config, log)
        else:
            make_folder(folder)
            idle = faults.compute or cluster is not None  # who plays elsewhere opens games there
            games = open_games(experiment, 1 if idle else None)
            start = begin(experiment, games)
            about = {**describe_machine(), "precision": start.precision, "faults": str(faults)}
            config = Config(name, experiment, start.actions, about)
        if needed := buffer_bytes(experiment, start.statistics.mean.shape):
            log(f"the experience stores take {needed / 2**20:,.0f} MiB")
            if cluster is None:
                check_memory(needed, available_memory())
        run = Run(experiment, folder, config, start, began, faults, log)
        place = run.on_threads(games) if cluster is None else run.on_ray(cluster)
        stack.callback(place.close)
        if resume and experiment.replay.keep:
            load_stores(place.roles, folder, log)
        if not resume:  # not before: a cluster that is too small leaves the folder empty
            write_config(folder, config)
        return run.watch_over(place, watch, cluster)


@dataclass
class Run:
    """One start of a run, from here to its end; ``status`` is the last that was heard of it."""

    experiment: Experiment
    folder: Path
    config: Config
    start: Start
    began: float
    faults: Faults
    log: Callable[[str], None]
    status: Status = field(default_factory=Status)

    def on_threads(self, games: Sequence[Games] | None) -> Threads:
        """Return the run's roles in this process."""
        plan = draw(
            self.experiment, self.start, self.folder, self.began, games=games, faults=self.faults
        )
        return Threads(plan.build(), self.experiment.shape.deadline, self.log)

    def on_ray(self, cluster: Cluster) -> Ray:
        """Return the run's roles in processes of the cluster that this process has joined."""
        if self.experiment.replay.keep:
            raise GeladaError(
                "--keep with --on ray: stores live on other hosts than the run's folder; leave it "
                "out, and a resumed run fills them anew"
            )
        from gelada.runtime.ray.runtime import Drawn, Ray

        def drawn(start: Start) -> Drawn:
            plan = partial(
                draw,
                self.experiment,
                start,
                self.folder.resolve(),
                self.began,
                faults=self.faults,
                spread=True,
            )
            return Drawn(start.version.epoch, plan)

        def again(epoch: int) -> Drawn:
            with suppress(Lost, Closed, OSError):  # what it was writing is to be complete
                place.roles["tracker"].finish()
            start = self._after_a_loss(epoch)
            lost = max(self.status.steps - start.steps, 0)
            events(
                {"event": "restored", "epoch": start.version.epoch, "steps": start.steps}
                | {"version": start.version.number, "lost_steps": lost}
                | {"lost_versions": max(self.status.version - start.version.number, 0)}
                | {"lost_experience": self._experience()}
            )
            self.log(f"{lost:,} steps since then are lost and played anew")
            if self.experiment.replay.capacity:
                self.log(f"all stores begin empty: they kept {self._experience():,} steps")
            return drawn(start)

        first, shape = drawn(self.start), self.experiment.shape
        events = Events(self.folder / "events.jsonl", self.began)
        place = Ray(
            first.draw(),
            first,
            again,
            cluster,
            shape.deadline,
            self.log,
            events,
            self.experiment.seed,
        )
        return place

    def _experience(self) -> int:
        """Return about how many steps all experience stores keep."""
        workers, shape = self.status.workers, self.experiment.shape
        if not self.experiment.replay.capacity or workers is None:
            return 0
        return round(workers.queue) * max(shape.workers, 1)  # apart, a learner sees all stores

    def watch_over(
        self, place: Threads | Ray, watch: Watch | None, cluster: Cluster | None
    ) -> Result:
        """Start all roles, wait for the end, save what was learned."""
        tracker: Tracker = place.roles["tracker"]
        saver = _saver(place, self.experiment, self.start, self.log)
        trouble = FaultSchedule(self.faults.hits, self.experiment.seed)
        interrupted = stuck = False
        good_enough = threading.Event()

        def hear(news: dict[str, Any]) -> None:
            with suppress(Lost):
                if news["kind"] == "evaluation" and tracker.evaluated(news["mean"]):
                    good_enough.set()

        place.start()
        try:
            sidecars = self.experiment.sidecars
            with Followers(
                self.folder, sidecars.evaluator, sidecars.recorder, sidecars.record_length, hear
            ) as followers:
                while not place.wait(0.5) and not good_enough.is_set():
                    place.check()
                    with suppress(Lost):  # the next wait sees to it
                        self._look(tracker, saver)
                        if cluster is not None and cluster.shrink:
                            self._shrink(place)
                    if watch:
                        watch(self.status, place.active)
                    if line := followers.dead():
                        self.log(line)
                    for kind, number in trouble.due():
                        place.hit(kind, number)
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
            try:
                failure = _save_last(saver, tracker, hung)
                self.status = tracker.status()
                if self.experiment.replay.keep and not hung:
                    save_stores(place.roles, self.folder, self.log)
            except Lost as error:
                failure = None
                self.log(f"the newest version could not be saved: {error}")
        if failure:
            raise CannotWrite(_disk_line(self.folder, failure))
        if hung and not interrupted:
            raise Stalled(f"{', '.join(hung)} did not stop; everything learned is saved")
        return Result(self.folder, self.status, interrupted)

    def _look(self, tracker: Tracker, saver: LearnerSaver | SliceSaver) -> None:
        """See to checkpoints, and how the run is."""
        if failure := tracker.failure():
            raise CannotWrite(_disk_line(self.folder, failure))
        self.status = tracker.status()
        saver.look()

    def _shrink(self, place: Threads | Ray) -> None:
        """Let steps take the gradients of the learners that are there."""
        shape = self.experiment.shape
        if shape.apart and not shape.asynchronous:
            count = max(min(shape.gradients, shape.learning - place.away), 1)
            for name, role in place.roles.items():
                if name.startswith("server-"):
                    role.need(count)

    def _after_a_loss(self, epoch: int) -> Start:
        """Return where all goes on when a role is lost that others cannot go on without."""
        if list_checkpoints(self.folder / "checkpoints"):
            start = begin_again(self.folder, self.config, self.log)
        else:
            self.log("there is no checkpoint yet: beginning anew")
            start = self.start
        seconds = self.start.counters.get("seconds", 0.0)  # the time since then is in `began`
        version = start.version._replace(epoch=max(start.version.epoch, epoch + 1))
        return start._replace(version=version, counters=start.counters | {"seconds": seconds})


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
    place: Threads | Ray, experiment: Experiment, start: Start, log: Callable[[str], None]
) -> LearnerSaver | SliceSaver:
    """Return who saves: the learner between its rounds, or whoever watches over the servers."""
    tracker = place.roles["tracker"]
    if not experiment.shape.apart:
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
