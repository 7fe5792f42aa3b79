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
from gelada.core.fields import check as check_fields
from gelada.core.files import Events
from gelada.experiment.memory import check_cluster_memory, check_limits
from gelada.experiment.settings import Experiment, flag
from gelada.roles.tracker import Status, Tracker
from gelada.runs.folder import CHECKPOINTS, EVENTS
from gelada.runtime.api import Runtime
from gelada.runtime.devices import ON_CPU, Devices, Placement, find_device, place, prepare
from gelada.runtime.graph import Graph
from gelada.runtime.groups import Cluster
from gelada.training.exact import cut_lines
from gelada.training.runtimes import Log, Plan
from gelada.training.start import Start, begin_again

if TYPE_CHECKING:
    from gelada.runtime.ray.placement import Incarnation


class OnRay:
    """The roles of a run in processes of a Ray cluster (a `gelada.training.runtimes.Launcher`)."""

    remote = True

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster or Cluster()
        self._alive: Any = None  # tells whether Ray itself lives
        self.shrinks = self._cluster.shrink

    def check(self, experiment: Experiment, devices: Devices, resumed: bool = False) -> Placement:
        """Return the devices of a run for which a Ray of this machine's own has room."""
        check_fields(self._cluster, flag)
        placement = place(devices, on_ray=True)
        check_limits(experiment, self._cluster, placement, resumed)
        return placement

    def prepare(self, experiment: Experiment, placement: Placement, log: Log) -> None:
        """Do nothing: the processes of the cluster are set up as they make their roles."""

    def join(self, experiment: Experiment, stack: ExitStack, log: Log) -> None:
        """Join the cluster until the stack is left."""
        self._alive = join(self._cluster, experiment, stack, log)

    def launch(self, plan: Plan, status: Callable[[], Status]) -> tuple[Graph, Runtime]:
        """Place the processes in the cluster."""
        from gelada.runtime.ray.runtime import Ray
        from gelada.runtime.ray.session import is_on_network

        incarnations = Incarnations(plan, bool(self._cluster.joined) and is_on_network())

        def restore(number: int) -> Incarnation:
            return incarnations.restore(number, runtime.roles["tracker"], status())

        first, experiment = incarnations.of(plan.start), plan.experiment
        runtime = Ray(
            first,
            restore,
            self._cluster,
            experiment.shape.deadline,
            plan.log,
            incarnations.events,
            whole=experiment.deterministic,
            alive=self._alive,
            disk_patience=experiment.tracker.disk_patience,
        )
        return first.make_graph(), runtime


class Incarnations:
    """Makes the incarnations of a run in processes.

    Args:
        plan: what the roles are made from; its placement is that of a process that learns.
        on_network: processes may be on several hosts.

    Raises:
        GeladaError: if replay buffers are to be kept, which live on other hosts than the folder.
    """

    def __init__(self, plan: Plan, on_network: bool) -> None:
        experiment = self._experiment = plan.experiment
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
        self._plan, self._on_network = plan, on_network
        self.events = Events(plan.folder / EVENTS, plan.began)

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
        self._plan.log(f"{lost:,} steps since then are lost and played anew")
        if self._experiment.replay.capacity:
            self._plan.log(f"all replay buffers begin empty: they kept {experience:,} steps")
        return self.of(start)

    def of(self, start: Start) -> Incarnation:
        """Return the incarnation that begins with a start of the run."""
        from gelada.runtime.ray.placement import Incarnation

        plan = self._plan
        make = partial(
            graph_in_process,
            plan.make,
            plan.placement,
            plan.experiment,
            start,
            plan.folder.resolve(),
            plan.began,
            on_network=self._on_network,
        )
        return Incarnation(start.version.incarnation, make, bool(plan.placement.gpus))

    def _newest(self, number: int) -> Start:
        """Return where the run goes on: at the newest checkpoint, or at its start without one."""
        plan, first = self._plan, self._plan.start
        if any(map(is_there, list_checkpoints(plan.folder / CHECKPOINTS))):
            start = begin_again(plan.folder, plan.config, plan.log)
        else:
            plan.log("there is no checkpoint yet: beginning anew")
            start = first
            if self._experiment.deterministic:
                cut_lines(plan.folder, start.version.number, start.steps)
        seconds = first.counters.get("seconds", 0.0)  # the time since then is in `began`
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
    on_network: bool = False,
    gpu: bool = False,
) -> Graph:
    """Return the graph of a run as a process makes it, on CPUs unless it was given a GPU.

    Arguments that are not named below are those of `gelada.training.topology.make_graph`.

    Args:
        make: what makes graphs, as the driver has it.
        placement: the devices of a process that has a GPU.
        gpu: whether this process has a GPU.

    Raises:
        GeladaError: if torch cannot use the GPU.
    """
    own = placement if gpu else ON_CPU._replace(act_with=placement.act_with)
    for device in own.gpus:
        find_device(str(device))  # torch may be unable to use it
    prepare(own, experiment.deterministic)
    return make(
        experiment,
        start,
        folder,
        began,
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
