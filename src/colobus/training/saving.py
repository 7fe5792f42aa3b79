"""Saving: checkpoints joined from slices of parameter servers, replay buffers, and exact resume.

In a deterministic run a checkpoint holds the states of all actors at its version, and what was
counted until then. Without a replay buffer it also holds the parameters of the version before; with
one, a copy of the buffer lies beside the checkpoint. Then every number that the resumed run
computes is that of the unbroken run.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from colobus.algorithms.api import Algorithm
from colobus.core.arrays import join
from colobus.core.checkpoint import (
    Check,
    Checkpoint,
    check_listed,
    list_checkpoints,
    newest_checkpoint,
)
from colobus.core.errors import CannotWrite, ColobusError, Lost, quoted
from colobus.core.files import LONGEST, open_regular, parse_lines
from colobus.core.timing import sleep
from colobus.core.types import AlgorithmState, Origin, Params, State, Version
from colobus.envs.make import agents
from colobus.experiment.memory import batch_of
from colobus.experiment.settings import Experiment, ReuseSettings
from colobus.roles.learner import Learner
from colobus.roles.parameters.server import OptimizerState, ParameterServer
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.in_rounds import BufferInRounds, folder_of
from colobus.roles.schedule import annealed
from colobus.roles.snapshot import WRONG
from colobus.roles.tracker import Status, Tracker
from colobus.roles.tracker.writer import RETRY_SECONDS
from colobus.roles.update_schedule import ONE_EACH, UpdateSchedule
from colobus.runs.folder import BUFFERS, CHECKPOINTS, EPISODES, METRICS, MODEL
from colobus.runtime.api import Runtime
from colobus.runtime.graph import RoleGraph

LOOKS, SECONDS_BETWEEN_LOOKS = 10, 0.2
"""At servers of several versions at the end: the last gradients may still be on their way."""


@dataclass
class LearnerSaver:
    """Saver of a run whose servers step the learner's parameters in place."""

    learner: Learner
    name: str  # of the learner

    def look(self) -> None:
        """Do nothing: the learner saves after a round when a checkpoint is due."""

    def needs(self, hung: Sequence[str]) -> bool:
        """Say whether the last save has to wait for roles that have not ended yet."""
        return self.name in hung

    def last(self, hung: Sequence[str]) -> bool:
        """Save the newest version; return False if the learner is in the middle of a round."""
        return self.name not in hung and self.learner.save_last()


@dataclass
class SliceSaver:
    """Saver of a run whose servers have memory of their own.

    Every server keeps a copy at the same versions (`ServerSettings.keep_every`). The servers reach
    such a version at different times, so the run calls `look` regularly.
    """

    servers: Sequence[ParameterServer]  # in the order of their slices
    learners: Sequence[str]  # their names; the last save waits for them
    tracker: Tracker  # writes the checkpoints
    experiment: Experiment  # in asynchronous runs the servers' versions may differ
    saved: Version  # the newest that is not to be saved: at first that at the start of the run
    log: Callable[[str], None]  # called with a line if the newest version cannot be saved

    def look(self) -> None:
        """Save the copies that the servers keep, if a checkpoint is due and they match."""
        if self.tracker.wants_checkpoint():
            self._save_kept()

    def needs(self, hung: Sequence[str]) -> bool:
        """Say whether the last save has to wait for roles that have not ended yet."""
        return not set(self.learners).isdisjoint(hung)

    def last(self, hung: Sequence[str]) -> bool:
        """Save the newest version after the learners have ended; return whether that worked."""
        for _ in range(LOOKS):
            slices = [server.state() for server in self.servers]
            versions = [params.version for params, _ in slices]
            if len(set(versions)) == 1 or self.experiment.shape.asynchronous:
                break
            sleep(SECONDS_BETWEEN_LOOKS)
        if not all(bool(params.values.isfinite().all()) for params, _ in slices):
            return False
        if len(set(versions)) == 1 or self.experiment.shape.asynchronous:
            if max(versions) > self.saved:
                self._save(slices)
            return True
        numbers = ", ".join(f"server-{i} at {v.number}" for i, v in enumerate(versions))
        self.log(f"the newest parameters have different versions ({numbers}): not saved")
        self._save_kept()
        return False

    def _save_kept(self) -> None:
        slices = [server.kept(above=self.saved) for server in self.servers]
        whole = [part for part in slices if part is not None]
        if len(whole) == len(slices) and len({params.version for params, _ in whole}) == 1:
            self._save(whole)

    def _save(self, slices: Sequence[tuple[Params, OptimizerState]]) -> None:
        version = max(params.version for params, _ in slices)
        steps = self.tracker.steps_at(version.number)
        steps = self.tracker.status().steps if steps is None else steps
        algorithm, seconds = self.experiment.algorithm, self.tracker.status().seconds
        self.tracker.checkpoint(
            [params for params, _ in slices],
            [optimizer for _, optimizer in slices],
            aux_at(algorithm, annealed(algorithm, self.experiment.budget, steps, seconds)),
            steps,
            mixed=self.experiment.shape.asynchronous,
        )
        self.saved = version


Saver = LearnerSaver | SliceSaver


def saver_of(
    experiment: Experiment,
    graph: RoleGraph,
    runtime: Runtime,
    first: Version,
    log: Callable[[str], None],
) -> Saver:
    """Return what saves a run's checkpoints: the learner itself, or slices of all servers."""
    learners, roles = graph.names("learner"), runtime.roles
    if not experiment.shape.topology.remote_servers:
        return LearnerSaver(roles[learners[0]], learners[0])
    servers = [roles[name] for name in graph.names("server")]
    return SliceSaver(servers, learners, roles["tracker"], experiment, first, log)


def save_last(
    saver: Saver,
    runtime: Runtime,
    hung: Sequence[str],
    experiment: Experiment,
    folder: Path,
    log: Callable[[str], None],
) -> tuple[OSError | None, bool, Status | None]:
    """Save the newest version at the end of a run, and the replay buffers if asked.

    Returns:
        A failure to write, whether all that was learned is saved, and the tracker's last status
        (None if the tracker is lost).

    Raises:
        CannotWrite: if the disk is full for a replay buffer; what was saved before is kept.
    """
    failure: OSError | None = None
    saved, status = False, None
    tracker: Tracker = runtime.roles["tracker"]
    patience, told = experiment.tracker.disk_patience, False

    def wait_for(trouble: str) -> None:
        nonlocal told  # checkpoints and logs fail one after the other on the same disk
        if not told:
            log(
                f"waiting at most {patience:g} s to save into {folder}: {trouble}; Ctrl-C again "
                "ends the run without it"
            )
        told = True

    until = time.monotonic() + patience
    try:
        while failure is None:
            try:
                saved = saver.last(hung)
                break
            except CannotWrite as error:  # only the disk is in the way
                if time.monotonic() >= until or tracker.failure():
                    failure = OSError(errno.EIO, str(error))
                else:
                    wait_for(str(error))
                    time.sleep(RETRY_SECONDS)
        if failure is None and (trouble := tracker.status().trouble):
            wait_for(trouble)
        try:
            tracker.finish()
        except OSError as error:
            failure = error
        status = tracker.status()
        if experiment.replay.keep:
            for name, buffer in _buffers(runtime.roles).items():
                log(f"saving {buffer.depth:,} steps of experience")
                buffer.save(folder / BUFFERS / name)
    except Lost as error:
        saved = False
        log(f"the newest version could not be saved: {error}")
    return failure, saved and failure is None, status


def aux_at(algorithm: Algorithm, steps: int) -> AlgorithmState:
    """Return an algorithm's state if it depends on the environment steps only."""
    algorithm_state = algorithm.start()
    algorithm.after(algorithm_state, {}, steps)
    return algorithm_state


def load_buffers(roles: Mapping[str, Any], folder: Path, log: Callable[[str], None]) -> None:
    """Fill the replay buffers with the experience that the run saved before.

    Raises:
        ColobusError: if a file is damaged, or of a buffer with other settings.
    """
    for name, buffer in _buffers(roles).items():
        if (folder / BUFFERS / name).exists():
            _load(buffer, folder / BUFFERS / name)
            log(f"{name}: {buffer.depth:,} steps of experience loaded")
        else:
            log(f"{name}: no experience was saved; it begins empty")


def load_exactly(roles: Mapping[str, Any], folder: Path, version: Version) -> None:
    """Fill the replay buffer of a deterministic run with what it held at a checkpoint's version.

    Raises:
        ColobusError: if the file is missing or damaged.
    """
    if isinstance(buffer := roles.get("replay"), BufferInRounds):
        _load(buffer, buffer_at(folder, version))


def _load(buffer: ReplayBuffer | BufferInRounds, folder: Path) -> None:
    """Load what a buffer has saved; say what to do if that cannot be."""
    try:
        buffer.load(folder)
    except ColobusError as error:
        raise ColobusError(f"{error}; or delete {folder}, to begin with an empty one") from None
    except (OSError, *WRONG) as error:
        raise ColobusError(
            f"{folder} has a value that cannot be: {error}; delete it, to begin with an empty one"
        ) from None


def _buffers(roles: Mapping[str, Any]) -> dict[str, ReplayBuffer]:
    return {name: role for name, role in roles.items() if isinstance(role, ReplayBuffer)}


DETERMINISTIC_EVERY = 10
"""Versions between lines of metrics in the deterministic mode."""


def update_schedule_of(experiment: Experiment) -> UpdateSchedule:
    """Return how many versions a deterministic run makes of how many rounds."""
    shape, replay = experiment.shape, experiment.replay
    if not replay.capacity:
        return ONE_EACH
    rows = shape.actors * shape.games * agents(experiment.games)
    windows, length = batch_of(experiment)
    minimum = max(replay.minimum, rows * (length + 1))  # no window is whole before that
    return UpdateSchedule(rows * shape.length, minimum, replay.samples_per_insert, windows)


def states_of(checkpoint: Checkpoint, experiment: Experiment) -> dict[str, State]:
    """Return the states of all actors in a checkpoint, by name; {} if it does not have them."""
    values = checkpoint.counters.get("play", {})
    if not isinstance(values, dict) or not all(isinstance(v, dict) for v in values.values()):
        return {}
    states = join(checkpoint.tensors, values, "play")
    wanted = {f"actor-{index}" for index in range(experiment.shape.topology.players)}
    return states if states.keys() == wanted else {}


def origin_of(checkpoint: Checkpoint, experiment: Experiment, folder: Path) -> Origin | None:
    """Return the origin of a run that goes on exactly from a checkpoint; None if it cannot."""
    if not experiment.deterministic or "origin" not in checkpoint.counters:
        return None
    shape = experiment.shape
    if max(shape.ahead, shape.broadcast_every) > 1 or experiment.reuse != ReuseSettings():
        return None  # older parameters, or trajectories and batches that are used again
    try:
        incarnation, version, steps = map(int, checkpoint.counters["origin"])
    except (TypeError, ValueError):
        raise ColobusError(
            f"the checkpoint of version {checkpoint.version.number}: counters.origin is "
            f"{checkpoint.counters['origin']!r}, want three numbers"
        ) from None
    origin = Origin(incarnation, version, steps)
    states, update_schedule = states_of(checkpoint, experiment), update_schedule_of(experiment)
    round = update_schedule.rounds(checkpoint.version.number - origin.version)
    if not states or any(state.get("round") != round for state in states.values()):
        return None
    if experiment.replay.capacity and not buffer_at(folder, checkpoint.version).exists():
        return None
    return origin


def buffer_at(folder: Path, version: Version) -> Path:
    """Return the folder of the central replay buffer that was saved at a version."""
    return folder_of(folder / BUFFERS / "replay", version)


def cut_lines(folder: Path, version: int, steps: int) -> None:
    """Delete the lines of a run's metrics and episodes after a version and its steps.

    The run writes them again. Lines of metrics that only the end of the earlier run made go too.

    Raises:
        ColobusError: if a file cannot be read; names it.
    """

    def is_before(line: State) -> bool:
        number = _number(line, "version")
        return number <= version and number % DETERMINISTIC_EVERY == 0

    _cut(folder / METRICS, is_before)
    _cut(folder / EPISODES, lambda line: _number(line, "steps") <= steps)


def _number(line: State, name: str) -> float:
    """Return a number of a line; one that is larger than all others if there is none."""
    value = line.get(name)
    return value if isinstance(value, int) else math.inf


def _cut(path: Path, stays: Callable[[State], bool]) -> None:
    """Cut a file off after the last line that stays, however long it is."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):  # what a link leads to is no file of the run
            raise OSError(errno.EINVAL, "not a regular file")
        if not found.st_size:  # nothing that could be mapped
            return
        with open_regular(path) as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            end = len(data)
            while end:
                begin = data.rfind(b"\n", max(end - LONGEST, 0), end - 1) + 1
                if end - begin > LONGEST:
                    raise OSError(errno.EFBIG, f"a line is longer than {LONGEST:,} bytes")
                if any(map(stays, parse_lines(data[begin:end].decode(errors="replace")))):
                    break
                end = begin
        if end < found.st_size:
            os.truncate(path, end)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ColobusError(f"{path} cannot be read: {error.strerror or error}") from None


def newest_of(folder: Path, check: Check | None) -> tuple[Path, Checkpoint, list[str]]:
    """Return a run's `newest_checkpoint`, which knows of evaluations that ended after it.

    Raises:
        ColobusError: if there is none; it says how to begin anew.
    """
    from colobus.runs.best import best_evaluated  # no new run needs it

    check_listed(folder / CHECKPOINTS)
    if (folder / MODEL).is_file():
        raise ColobusError(f"{folder} is an exported agent: begin a run with its weights by --from")
    if not list_checkpoints(folder / CHECKPOINTS):
        raise ColobusError(
            f"{folder} ended before its first checkpoint, so it cannot be resumed: begin it anew "
            f"with the command that began it and --resume-or-start --out {quoted(str(folder))}"
        )
    path, checkpoint, passed_over = newest_checkpoint(folder / CHECKPOINTS, check)
    checkpoint.counters["evaluated"] = best_evaluated(folder, checkpoint.counters.get("evaluated"))
    return path, checkpoint, passed_over
