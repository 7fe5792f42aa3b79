"""Train an agent: the file to read first.

    Actor ──Trajectory──> Replay ──Batch──> Learner ──Gradient──> ParameterServer ──Params──> Actor

`train` makes the graph of the roles (`gelada.training.topology`), gives it to a runtime (threads of
this process, or processes of a Ray cluster), and watches until a stop rule holds. The loop that
learns is `step` in `gelada.roles.learner`; the loop that plays is `step` in `gelada.roles.actor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gelada.core.errors import GeladaError, Lost, Stalled
from gelada.core.files import Events
from gelada.core.settings import check as check_fields
from gelada.envs.api import Games
from gelada.roles.tracker import Status, Tracker
from gelada.runtime.api import Active, Runtime
from gelada.runtime.devices import ON_CPU, Devices, Placement, describe_devices, place, prepare
from gelada.runtime.graph import Graph
from gelada.runtime.groups import Cluster
from gelada.runtime.system import describe_machine, keep_freed_memory, usable_cores
from gelada.runtime.threads import Threads
from gelada.training.alarms import Alarms
from gelada.training.buffers import buffer_bytes
from gelada.training.callbacks import NO_CALLBACKS, Callbacks, Caller, StopTraining
from gelada.training.config import Config, identity, new_run, read_config, write_config
from gelada.training.cores import idle
from gelada.training.experiment import Experiment, flag
from gelada.training.faults import NONE, Faults, FaultSchedule
from gelada.training.limits import check_limits
from gelada.training.on_ray import EpochMaker
from gelada.training.run_folder import cannot_write, held, make_folder
from gelada.training.saving import (
    LearnerSaver,
    SliceSaver,
    load_buffers,
    load_exactly,
    save_buffers,
)
from gelada.training.sidecars import Followers
from gelada.training.start import Start, begin, begin_again, open_games
from gelada.training.topology import make_graph
from gelada.training.validate import check

Watch = Callable[[Status, Sequence[Active]], None]
"""Takes the status of the run and its active roles, to show them."""

LOOK_SECONDS = 0.5
"""Between two looks at a run: for failures, due checkpoints, faults and the display."""


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    folder: Path
    status: Status
    interrupted: bool  # by Ctrl-C
    stopped: str = ""  # why a callback ended it, or ""
    saved: bool = True  # whether everything that was learned is in the newest checkpoint

    @property
    def steps(self) -> int:
        """Environment steps of the run."""
        return self.status.steps

    @property
    def score(self) -> float | None:
        """Mean raw return of the last 50 full games; None if none ended."""
        return self.status.score


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
    callbacks: Callbacks = NO_CALLBACKS,
    devices: Devices | None = None,
) -> Result:
    """Train until a stop rule holds, a role fails, a callback asks for the end, or Ctrl-C.

    Args:
        experiment: all settings (with ``resume``: those of the run, or with another stop rule).
        folder: of the run; must be new or empty unless ``resume``.
        name: game or preset as the user gave it.
        resume: go on from the newest complete checkpoint in ``folder``.
        watch: called about twice a second with the status and the active roles. GeladaError and
            KeyboardInterrupt end the run; after any other error it is not called again.
        log: takes lines for the user.
        began: `time.monotonic` when the process started, if seconds count from there.
        faults: what goes wrong on purpose, in experiments.
        cluster: run the roles in processes of this Ray cluster (None: on threads).
        callbacks: called about twice a second with what is new.
        devices: that learn and act.

    Raises:
        GeladaError: if a setting is out of range, the folder is not empty or in use by another
            process, a role failed or hung, or a disk is full for longer than the patience. What
            was learned until then is in the newest checkpoint.
    """
    began = time.monotonic() if began is None else began
    check(experiment)
    if cluster is not None:
        check_fields(cluster, flag)
    placement = place(devices or Devices(), on_ray=cluster is not None)
    check_limits(experiment, here=cluster is None, placement=placement)
    prepare(placement, experiment.deterministic)
    if cluster is None and (line := idle(experiment, usable_cores())):
        log(line)
    keep_freed_memory()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        if cluster is not None:
            _join(cluster, stack)
        games: list[Games] | None = None
        if resume:
            config = read_config(folder)
            stack.enter_context(held(folder, resume, log))
            start = begin_again(folder, config, log)
        else:
            make_folder(folder)
            stack.enter_context(held(folder, resume, log))
            elsewhere = faults.compute or cluster is not None  # those who play open games there
            games = open_games(experiment, 1 if elsewhere else None)
            start = begin(experiment, games, placement.learn)
            about = {"run": new_run(), **describe_machine(), "precision": start.precision}
            about |= describe_devices(placement)
            about["faults"] = str(faults)
            config = Config(name, experiment, start.actions, about)
            start = start._replace(run=identity(config))
        if needed := buffer_bytes(experiment, start.statistics.mean.shape):
            log(f"experience that is kept takes {needed / 2**20:,.0f} MiB")
        run = Run(
            experiment, folder, config, start, began, faults, log, cluster, callbacks, placement
        )
        graph, runtime = run.place(games)
        stack.callback(runtime.close)
        if start.exact:
            load_exactly(runtime.roles, folder, start.version)
        elif resume and experiment.replay.keep:
            load_buffers(runtime.roles, folder, log)
        if not resume:  # not before, so that a cluster that is too small leaves the folder empty
            write_config(folder, config)
        return run.watch_over(graph, runtime, watch)


@dataclass
class Run:
    """One start of a run, from here to its end."""

    experiment: Experiment
    folder: Path
    config: Config
    start: Start
    began: float
    faults: Faults
    log: Callable[[str], None]
    cluster: Cluster | None
    callbacks: Callbacks = NO_CALLBACKS
    placement: Placement = ON_CPU

    def __post_init__(self) -> None:
        self._caller = Caller(self.callbacks, self.folder, self.log)
        self.stopped = ""  # why a callback ended the run
        self.status = Status()  # the last that the tracker told
        self._good_enough = threading.Event()  # an evaluation has reached its goal
        self._alarms = Alarms(self.experiment.tracker, self.log)

    def place(self, games: Sequence[Games] | None) -> tuple[Graph, Runtime]:
        """Make the graph of the roles, and the runtime that will run them."""
        deadline = self.experiment.shape.deadline
        if self.cluster is None:
            graph = make_graph(
                self.experiment,
                self.start,
                self.folder,
                self.began,
                games=games,
                faults=self.faults,
                placement=self.placement,
            )
            events = Events(self.folder / "events.jsonl", self.began)
            return graph, Threads(graph.build(), deadline, self.log, events)
        from gelada.runtime.ray.runtime import Ray

        epochs = EpochMaker(
            self.experiment, self.folder, self.config, self.start, self.began, self.faults, self.log
        )

        def restore(number: int) -> Any:
            return epochs.restore(number, runtime.roles["tracker"], self.status)

        first, seed = epochs.first(), self.experiment.seed
        whole = self.experiment.deterministic
        runtime = Ray(first, restore, self.cluster, deadline, self.log, epochs.events, seed, whole)
        return first.make_graph(), runtime

    def watch_over(self, graph: Graph, runtime: Runtime, watch: Watch | None) -> Result:
        """Start all roles, wait for the end, and save what was learned."""
        tracker: Tracker = runtime.roles["tracker"]
        saver = self._saver(graph, runtime)
        schedule = FaultSchedule(self.faults.hits, self.experiment.seed)
        sidecars = self.experiment.sidecars
        interrupted = stuck = False
        runtime.start()
        try:
            with Followers(
                self.folder,
                sidecars.evaluator,
                sidecars.recorder,
                sidecars.record_length,
                lambda news: self._hear(news, tracker),
            ) as followers:
                while not runtime.wait(LOOK_SECONDS) and not self._good_enough.is_set():
                    runtime.check()
                    with suppress(Lost):  # the next wait replaces what is lost
                        self._look(tracker, saver, runtime)
                        self._shrink(graph, runtime)
                    watch = self._show(watch, runtime.active)
                    if line := followers.dead():
                        self.log(line)
                    for kind, number in schedule.due():
                        runtime.hit(kind, number)
                runtime.check()
        except KeyboardInterrupt:
            interrupted = True
        except StopTraining as request:
            self.stopped = str(request) or "a callback"
        except Stalled:
            stuck = True
            raise
        finally:
            hung = runtime.stop(patience=5.0)
            if saver.needs(hung) and not stuck:  # a round of a large network takes longer
                hung = runtime.stop(patience=60.0)
            failure, saved = self._save(saver, tracker, runtime, hung)
        if failure:
            raise cannot_write(self.folder, failure)
        if hung and not interrupted:
            rest = "; everything learned is saved" if saved else ""
            raise Stalled(f"{', '.join(hung)} did not stop{rest}")
        with suppress(Lost, StopTraining):  # for what the last looks did not see
            self._caller.look(tracker, self.status)
        return Result(self.folder, self.status, interrupted, self.stopped, saved)

    def _saver(self, graph: Graph, runtime: Runtime) -> LearnerSaver | SliceSaver:
        """Return what saves checkpoints: the learner itself, or slices of all servers."""
        learners, roles = graph.names("learner"), runtime.roles
        if not self.experiment.shape.apart:
            return LearnerSaver(roles[learners[0]], learners[0])
        return SliceSaver(
            [roles[name] for name in graph.names("server")],
            learners,
            roles["tracker"],
            self.experiment.algorithm,
            self.start.version,
            self.experiment.shape.asynchronous,
            self.log,
        )

    def _hear(self, news: dict[str, Any], tracker: Tracker) -> None:
        """Take what a sidecar has found out."""
        with suppress(Lost):
            if news["kind"] == "evaluation" and tracker.evaluated(news["mean"]):
                self._good_enough.set()

    def _look(self, tracker: Tracker, saver: LearnerSaver | SliceSaver, runtime: Runtime) -> None:
        """Ask the tracker how the run is, save a checkpoint if one is due, and call callbacks."""
        if failure := tracker.failure():
            raise cannot_write(self.folder, failure)
        tracker.spent({role.name: dict(role.clock.seconds) for role in runtime.active})
        self.status = tracker.status()
        self._alarms.look(self.status)
        saver.look()
        self._caller.look(tracker, self.status)

    def _show(self, watch: Watch | None, active: Sequence[Active]) -> Watch | None:
        """Call the display or callback; return it, or None after an error in it."""
        try:
            if watch:
                watch(self.status, active)
        except (GeladaError, StopTraining):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self.log(f"the display or callback raised {what}; it is called no more")
            return None
        return watch

    def _shrink(self, graph: Graph, runtime: Runtime) -> None:
        """Let steps take the gradients of the learners that are there, with ``--shrink``."""
        shape = self.experiment.shape
        if self.cluster is None or not self.cluster.shrink or not shape.apart or shape.asynchronous:
            return
        count = max(min(shape.gradients, shape.learning - runtime.away), 1)
        for name in graph.names("server"):
            runtime.roles[name].need(count)

    def _save(
        self,
        saver: LearnerSaver | SliceSaver,
        tracker: Tracker,
        runtime: Runtime,
        hung: Sequence[str],
    ) -> tuple[OSError | None, bool]:
        """Save the newest version, and the replay buffers if asked.

        Returns:
            A failure to write, and whether all that was learned is saved.
        """
        failure: OSError | None = None
        saved = False
        try:
            saved = saver.last(hung)
            if trouble := tracker.status().trouble:
                patience = self.experiment.tracker.disk_patience
                self.log(
                    f"waiting at most {patience:g} s to save into {self.folder}: {trouble}; "
                    "Ctrl-C again ends the run without it"
                )
            try:
                tracker.finish()
            except OSError as error:
                failure = error
            self.status = tracker.status()
            if self.experiment.replay.keep and not hung:
                save_buffers(runtime.roles, self.folder, self.log)
        except Lost as error:
            self.log(f"the newest version could not be saved: {error}")
        return failure, saved and failure is None


def _join(cluster: Cluster, stack: ExitStack) -> None:
    """Join the Ray cluster until the stack is left.

    Raises:
        GeladaError: if Ray is not installed, or the cluster cannot be joined.
    """
    from gelada.runtime.ray import prepare

    prepare(cluster.address)
    try:
        from gelada.runtime.ray.session import connected
    except ImportError as error:
        raise GeladaError(
            f"--on ray: {error}; install it with: pip install 'gelada-rl[cluster]'"
        ) from None
    stack.enter_context(connected(cluster))
