"""A run on a Ray cluster: joining it, and the incarnations of the run.

An incarnation is the beginning of the run, or a return to a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gelada.core.checkpoint import is_there, list_checkpoints
from gelada.core.errors import Closed, GeladaError, Lost
from gelada.core.files import Events
from gelada.experiment.memory import check_cluster_memory
from gelada.experiment.settings import Experiment
from gelada.roles.tracker import Status, Tracker
from gelada.runs.config import Config
from gelada.runs.folder import CHECKPOINTS, EVENTS
from gelada.runtime.devices import ON_CPU, Placement, find_device, prepare
from gelada.runtime.graph import Graph
from gelada.runtime.groups import Cluster
from gelada.training.exact import cut_lines
from gelada.training.faults import NONE, Faults
from gelada.training.start import Start, begin_again
from gelada.training.topology import make_graph

if TYPE_CHECKING:
    from gelada.runtime.ray.placement import Incarnation


class IncarnationMaker:
    """Makes the incarnations of a run in processes.

    Args:
        experiment: all settings.
        folder: of the run.
        config: of the run.
        start: of the first incarnation.
        began: `time.monotonic` when the run began.
        faults: what goes wrong on purpose.
        log: takes lines for the user.
        on_network: processes may be on several hosts.
        placement: the devices of a process that learns.

    Raises:
        GeladaError: if replay buffers are to be kept, which live on other hosts than the folder.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        config: Config,
        start: Start,
        began: float,
        faults: Faults,
        log: Callable[[str], None],
        on_network: bool,
        placement: Placement = ON_CPU,
    ) -> None:
        if experiment.deterministic and experiment.replay.capacity:
            raise GeladaError(
                "--deterministic with a replay buffer and --on ray: the buffer is saved with each "
                "checkpoint, and lives on another host than the run's folder; leave one of them out"
            )
        if experiment.replay.keep:
            raise GeladaError(
                "--keep with --on ray: replay buffers live on other hosts than the run's folder; "
                "leave it out, and a resumed run fills them anew"
            )
        self._experiment, self._folder, self._config = experiment, folder, config
        self._start, self._began, self._faults, self._log = start, began, faults, log
        self._on_network, self._placement = on_network, placement
        self.events = Events(folder / EVENTS, began)

    def first(self) -> Incarnation:
        """Return the incarnation with which the run begins."""
        return self._incarnation(self._start)

    def restore(self, number: int, tracker: Tracker, status: Status) -> Incarnation:
        """Return an incarnation above ``number``, from the newest complete checkpoint.

        Args:
            number: of the incarnation in which a process was lost.
            tracker: of that incarnation; it finishes the checkpoint that it writes.
            status: of the run when it was last heard of.
        """
        with suppress(Lost, Closed, OSError):
            tracker.finish()
        start = self._newest(number)
        lost, experience = max(status.steps - start.steps, 0), self._experience(status)
        self.events(
            {"event": "restored", "epoch": start.version.incarnation, "steps": start.steps}
            | {"version": start.version.number, "lost_steps": lost}
            | {"lost_versions": max(status.version - start.version.number, 0)}
            | {"lost_experience": experience}
        )
        self._log(f"{lost:,} steps since then are lost and played anew")
        if self._experiment.replay.capacity:
            self._log(f"all replay buffers begin empty: they kept {experience:,} steps")
        return self._incarnation(start)

    def _incarnation(self, start: Start) -> Incarnation:
        from gelada.runtime.ray.placement import Incarnation

        make = partial(
            graph_in_process,
            make_graph,
            self._placement,
            self._experiment,
            start,
            self._folder.resolve(),
            self._began,
            faults=self._faults,
            on_network=self._on_network,
        )
        return Incarnation(start.version.incarnation, make, bool(self._placement.gpus))

    def _newest(self, number: int) -> Start:
        """Return where the run goes on: at the newest checkpoint, or at its start without one."""
        if any(map(is_there, list_checkpoints(self._folder / CHECKPOINTS))):
            start = begin_again(self._folder, self._config, self._log)
        else:
            self._log("there is no checkpoint yet: beginning anew")
            start = self._start
            if self._experiment.deterministic:
                cut_lines(self._folder, start.version.number, start.steps)
        seconds = self._start.counters.get("seconds", 0.0)  # the time since then is in `began`
        version = start.version._replace(incarnation=max(start.version.incarnation, number + 1))
        return start._replace(version=version, counters=start.counters | {"seconds": seconds})

    def _experience(self, status: Status) -> int:
        """Return about how many steps all replay buffers keep."""
        workers = status.workers
        if not self._experiment.replay.capacity or workers is None:
            return 0
        # a learner that stands alone reports the steps of all buffers
        return round(workers.queue) * max(self._experiment.shape.workers, 1)


def graph_in_process(
    make: Callable[..., Graph],
    placement: Placement,
    experiment: Experiment,
    start: Start,
    folder: Path | None,
    began: float | None,
    faults: Faults = NONE,
    on_network: bool = False,
    gpu: bool = False,
) -> Graph:
    """Return the graph of a run as a process makes it, on CPUs unless it was given a GPU.

    Arguments that are not named below are those of `make_graph`.

    Args:
        make: `make_graph` as the driver has it.
        placement: the devices of a process that has a GPU.
        gpu: whether this process has a GPU.

    Raises:
        GeladaError: if torch cannot use the GPU.
    """
    own = placement if gpu else ON_CPU
    for device in own.gpus:
        find_device(str(device))  # torch may be unable to use it
    prepare(own, experiment.deterministic)
    return make(
        experiment,
        start,
        folder,
        began,
        faults=faults,
        spread=True,
        placement=own,
        on_network=on_network,
    )


def join(
    cluster: Cluster, experiment: Experiment, stack: ExitStack, log: Callable[[str], None]
) -> Any:
    """Join a Ray cluster until the stack is left; return what tells whether it lives.

    Raises:
        GeladaError: if Ray is not installed, or the cluster cannot be joined or is too small.
    """
    from gelada.runtime.ray import has_token
    from gelada.runtime.ray import prepare as prepare_ray

    address = prepare_ray(cluster.address)
    try:
        from gelada.runtime.ray.session import connected
    except ImportError as error:
        raise GeladaError(
            f"--on ray: {error}; install it with: pip install 'gelada-rl[cluster]'"
        ) from None
    alive = stack.enter_context(connected(cluster))
    if address:
        from gelada.runtime.ray.placement import memory_of_cluster

        check_cluster_memory(experiment, cluster, memory_of_cluster())
        if not has_token():
            log(
                "Ray's token authentication is off (RAY_AUTH_MODE): whoever reaches a port of the "
                "cluster can run code on it"
            )
    return alive
