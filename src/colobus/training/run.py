"""Train an agent: the file to read first.

    Actor ──Trajectory──> Replay ──Batch──> Learner ──Gradient──> ParameterServer ──Params──> Actor

`train` makes the graph of the roles (`colobus.training.topology`), gives it to a runtime (threads
of this process, or processes of a Ray cluster), and watches until a stop rule holds. The loop that
learns is `step` in `colobus.roles.learner`; the loop that plays is `step` in `colobus.roles.actor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import Closed, ClusterLost, ColobusError, Lost, Stalled
from colobus.core.functions import code_in
from colobus.core.timing import clock, now
from colobus.envs.make import is_atari
from colobus.experiment.check import check
from colobus.experiment.memory import buffer_bytes
from colobus.experiment.settings import Experiment, algorithm_name
from colobus.roles.tracker import Status, Tracker
from colobus.runs.config import check_of, read_config, write_config
from colobus.runs.folder import CHECKPOINTS, CONFIG, PULSE, cannot_write, check_new, held
from colobus.runtime.api import RoleState, Runtime
from colobus.runtime.devices import Devices
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, Hosts
from colobus.runtime.system import BusyCores, keep_freed_memory
from colobus.training.callbacks import NO_CALLBACKS, Alarms, Callbacks, Caller, Pulse, StopTraining
from colobus.training.runtimes import Launcher, Plan, RuntimeName, launcher, runtime_of
from colobus.training.saving import Saver, load_buffers, load_exactly, save_last, saver_of
from colobus.training.sidecars import SidecarProcesses
from colobus.training.start import begin_again, begin_new
from colobus.training.topology import make_graph
from colobus.training.warm import Weights

Watch = Callable[[Status, Sequence[RoleState]], None]
"""Takes the status of the run and what its active roles do, to show them."""

LOOK_SECONDS = 0.5
"""Between two looks at a run: for failures, due checkpoints and the display."""

STOP_SECONDS = 5.0
"""For which the roles that still work at the end of a run are waited for, in any case."""

LATE_SECONDS = 60.0
"""For which they are waited for after that, if there is no hurry: on a busy machine a rollout, or a
round of a large network, takes long."""


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

    def _repr_html_(self) -> str:
        from colobus.core.notebook import html_table  # no run needs it

        score = None if self.score is None else f"{self.score:.2f} (mean of the last games)"
        best = None if self.status.best is None else f"{self.status.best:.2f}"
        ended = self.stopped or ("Ctrl-C" if self.interrupted else "its stop rule")
        rows = {"steps": f"{self.steps:,}", "games": f"{self.status.games:,}", "score": score}
        rows |= {"best": best, "time": clock(self.status.seconds), "ended by": ended}
        return html_table(f"Run {self.folder}", rows | {"all saved": "" if self.saved else "no"})


def train(
    experiment: Experiment,
    folder: Path,
    name: str = "",
    resume: bool = False,
    watch: Watch | None = None,
    log: Callable[[str], None] = print,
    began: float | None = None,
    cluster: Cluster | Hosts | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    devices: Devices | None = None,
    on: RuntimeName | None = None,
    make: Callable[..., RoleGraph] = make_graph,
    weights: Weights | None = None,
) -> Result:
    """Train until a stop rule holds, a role fails, a callback asks for the end, or Ctrl-C.

    Args:
        experiment: all settings (with ``resume``: those of the run, or with another stop rule).
        folder: of the run; must be new or empty unless ``resume``.
        name: game or preset as the user gave it.
        resume: go on from the newest complete checkpoint in ``folder``.
        watch: called about twice a second with the status and what roles do. ColobusError and
            KeyboardInterrupt end the run; after any other error it is not called again.
        log: takes lines for the user.
        began: `time.monotonic` when the process started, if seconds count from there.
        cluster: run the roles in processes of this Ray cluster, or in simulated time on these hosts
            (None: on threads).
        callbacks: called about twice a second with what is new.
        devices: that learn and act.
        on: name of the runtime (default: `runtime_of` the cluster).
        make: makes the graph of the roles, for experiments that change some of them.
        weights: that a new run begins with, instead of new ones.

    Raises:
        ColobusError: if a setting is out of range, the folder is not empty or in use by another
            process, a role failed or hung, or a disk is full for longer than the patience. What
            was learned until then is in the newest checkpoint.
    """
    began = time.monotonic() if began is None else began
    host = launcher(on or runtime_of(cluster), cluster)
    check(experiment)
    placement = host.check(experiment, devices or Devices(), resume)
    host.prepare(experiment, placement, log)
    keep_freed_memory()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        before = read_config(folder) if resume else None
        if before is None:
            if names := code_in([asdict(experiment), algorithm_name(experiment)], ("tags",)):
                from colobus.core.trust import remember_modules

                remember_modules(names)
            check_new(folder, make=True)
        stack.enter_context(held(folder, resume, log))
        try:
            host.join(experiment, stack, log)
            if before is None:
                new = begin_new(experiment, name, placement, host.remote, log, weights)
                config, start, games = new
                config.about.update({"time": host.time} if host.time else {})
            else:
                config, start, games = before, begin_again(folder, before, log), None
            plan = Plan(experiment, folder, config, start, games, began, make, placement, log)
            run = Run(plan, host, watch, callbacks)
            if needed := buffer_bytes(experiment, start.statistics.mean.shape):
                log(f"experience that is kept takes {needed / 2**20:,.0f} MiB")
            graph, runtime = host.launch(plan, lambda: run.status)
            stack.callback(runtime.close)
            if start.exact:
                load_exactly(runtime.roles, folder, start.version)
            elif resume and experiment.replay.keep:
                load_buffers(runtime.roles, folder, log)
            if not resume:  # not before: where a cluster is too small the folder stays empty
                write_config(folder, plan.config)
        except KeyboardInterrupt:  # nothing was learned yet
            last = newest_checkpoint(folder / CHECKPOINTS, check_of(before)) if before else None
            return Result(folder, Status(steps=last[1].steps if last else 0), interrupted=True)
        return run.watch_over(graph, runtime, resume)


@dataclass
class Run:
    """One start of a run, from here to its end."""

    plan: Plan
    launcher: Launcher
    watch: Watch | None = None
    callbacks: Callbacks = NO_CALLBACKS

    def __post_init__(self) -> None:
        plan = self.plan
        self.experiment, self.folder, self.start = plan.experiment, plan.folder, plan.start
        self.log = plan.log
        self._caller = Caller(self.callbacks, self.folder, self.log)
        self.stopped = ""  # why a callback ended the run
        self._going = False  # all roles were started, or something was learned before that
        self.status = Status(steps=self.start.steps)  # the last that the tracker told
        self._told = False  # that a sidecar has passed over a checkpoint
        self._good_enough = threading.Event()  # an evaluation has reached its goal
        self._alarms = Alarms(self.experiment.tracker, self.log)
        began = min(plan.began, now())  # simulated time begins at 0
        self.pulse = Pulse(plan.events(began, PULSE), self.experiment.tracker.pulse_seconds)
        self._busy = BusyCores()

    def watch_over(self, graph: RoleGraph, runtime: Runtime, resumed: bool) -> Result:
        """Start all roles, wait for their end, and save what was learned."""
        tracker: Tracker = runtime.roles["tracker"]
        saver = saver_of(self.experiment, graph, runtime, self.start.version, self.log)
        interrupted = stuck = lost = False
        sidecars = SidecarProcesses(
            self.folder,
            self.experiment.sidecars,
            lambda news: self._hear(news, tracker),
            lambda name: self.launcher.elsewhere(name, self.log),
        )
        try:
            self._start(runtime, resumed)
            with sidecars:
                self._wait(graph, runtime, saver, sidecars)
        except KeyboardInterrupt:
            interrupted = True
        except StopTraining as request:
            self.stopped = str(request) or "a callback"
        except Stalled:
            stuck = True
            raise
        except ClusterLost:
            lost = True  # nobody is there who could save anything
            raise
        finally:
            if self._going and not lost:
                hung = runtime.stop(patience=STOP_SECONDS)
                hurry = interrupted and not saver.needs(hung)
                if hung and not stuck and not hurry:
                    hung = runtime.stop(patience=LATE_SECONDS)
                failure, saved, status = save_last(
                    saver, runtime, hung, self.experiment, self.folder, self.log
                )
                self.status = status or self.status
        if not self._going:
            return Result(self.folder, self.status, interrupted, self.stopped)
        for line in sidecars.idle():
            self.log(line)
        if failure:
            raise cannot_write(self.folder, failure)
        if hung and not interrupted:
            rest = "; everything learned is saved" if saved else ""
            raise Stalled(f"{', '.join(hung)} did not stop{rest}")
        with suppress(Lost, StopTraining):  # for what the last looks did not see
            self._caller.look(tracker, self.status)
        if interrupted or self.stopped:  # half an update counts already, but cannot be kept
            with suppress(ColobusError):
                check = check_of(self.plan.config)
                self.status.steps = newest_checkpoint(self.folder / CHECKPOINTS, check)[1].steps
        return Result(self.folder, self.status, interrupted, self.stopped, saved)

    def _start(self, runtime: Runtime, resumed: bool) -> None:
        """Start all roles. In processes, the first of them learn while others are being started."""
        try:
            runtime.start(lambda: self._show([]))
            self._going = True
        finally:
            if not self._going:
                if runtime.has_begun("tracker"):
                    with suppress(Lost):
                        self.status = runtime.roles["tracker"].status()
                self._going = self.status.version > self.start.version.number
            if not (resumed or self._going):  # nothing was learned: this is no run
                (self.folder / CONFIG).unlink(missing_ok=True)

    def _wait(
        self, graph: RoleGraph, runtime: Runtime, saver: Saver, sidecars: SidecarProcesses
    ) -> None:
        """Look at the run again and again until it is over."""
        tracker: Tracker = runtime.roles["tracker"]
        while not runtime.wait(LOOK_SECONDS) and not self._good_enough.is_set():
            runtime.check()
            with suppress(Lost):  # the next wait replaces what is lost
                self._look(tracker, saver, runtime)
                self._shrink(graph, runtime)
            states = runtime.states()
            self.pulse.beat(states)
            self._show(states)
            if line := sidecars.dead():
                self.log(line)
        self.pulse.beat(runtime.states())  # a short run has had none
        runtime.check()

    def _hear(self, news: dict[str, Any], tracker: Tracker) -> None:
        """Take what a sidecar has found out."""
        if news["kind"] == "passed over" and not self._told:
            self._told = True  # as all of them may be, for the same reason
            self.log(f"a checkpoint was neither evaluated nor filmed: {news['why']}")
        if news["kind"] == "evaluation":
            mean, whole = news["mean"], news["games"] >= news["asked"]
            with suppress(Lost, Closed):  # as roles may be beginning again
                tracker.evaluated(mean, news["steps"], news["version"], whole)
            if whole and self.experiment.stop.is_met_by(mean):
                self._good_enough.set()

    def _look(self, tracker: Tracker, saver: Saver, runtime: Runtime) -> None:
        """Ask the tracker how the run is, save a checkpoint if one is due, and call callbacks."""
        if failure := tracker.failure():
            raise cannot_write(self.folder, failure)
        stages = {role.name: role.seconds for role in runtime.states()}
        shape, helped = self.experiment.shape, is_atari(self.experiment.games.game)
        several = self.launcher.remote or shape.env_processes or (helped and self.start.saved)
        tracker.spent(stages, None if several else self._busy.look())
        self.status = tracker.status()
        self.launcher.tell(self.status)
        self._alarms.look(self.status)
        saver.look()
        self._caller.look(tracker, self.status)

    def _show(self, roles: Sequence[RoleState]) -> None:
        """Call the display or callback, but not after an error in it."""
        try:
            if self.watch:
                self.watch(self.status, roles)
        except (ColobusError, StopTraining):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self.log(f"the display or callback raised {what}; it is called no more")
            self.watch = None

    def _shrink(self, graph: RoleGraph, runtime: Runtime) -> None:
        """Let steps take the gradients of the learners that are there, with ``--shrink``."""
        if not self.launcher.shrinks:
            return
        topology = self.experiment.shape.topology
        count = max(min(topology.gradients, topology.learners - runtime.away), 1)
        for name in graph.names("server"):
            runtime.roles[name].need(count)
