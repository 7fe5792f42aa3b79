"""A run on a Ray cluster: joining it, and the incarnations of the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from colobus.core.checkpoint import is_there, list_checkpoints
from colobus.core.errors import Closed, ColobusError, Lost, not_installed
from colobus.core.fields import check as check_fields
from colobus.experiment.memory import check_cluster_memory, check_limits, role_memory, store_bytes
from colobus.experiment.settings import Experiment, flag
from colobus.roles.tracker import Status, Tracker
from colobus.runs.folder import CHECKPOINTS
from colobus.runtime.api import Errand, Runtime
from colobus.runtime.devices import ON_CPU, Devices, Placement, find_device, place, prepare
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, Hosts, Room, places
from colobus.training.runtimes import Launcher, Log, Plan
from colobus.training.saving import cut_lines
from colobus.training.start import Start, begin_again


class OnRay(Launcher):
    """The roles of a run in processes of a Ray cluster, which set themselves up."""

    remote = True

    def __init__(self, cluster: Cluster | Hosts | None = None) -> None:
        self._cluster = cluster if isinstance(cluster, Cluster) else Cluster()
        self.shrinks = self._cluster.shrink
        self._alive: Any = None  # tells whether Ray itself lives
        self._exported: Any = None  # what tells Prometheus, on a cluster that was there before

    def check(self, experiment: Experiment, devices: Devices, resumed: bool = False) -> Placement:
        """Return the devices of a run for which a Ray of this machine's own has room."""
        check_fields(self._cluster, flag)
        beside = experiment.sidecars
        if self._cluster.sidecars_apart and not (beside.evaluator or beside.recorder):
            raise ColobusError(
                "--sidecars-apart: has an effect only with --evaluator or --recorder"
            )
        _ = places(self._cluster.place), self._cluster.patience  # raise if these are none
        if self._cluster.object_store and self._cluster.joined:
            raise ColobusError(
                f"--object-store {self._cluster.object_store} with a cluster that is there: it has "
                "its own; give ray start --object-store-memory"
            )
        free = not (experiment.shape.asynchronous or experiment.deterministic)
        if self.shrinks and not (experiment.shape.topology.remote_servers and free):
            raise ColobusError(
                "--shrink: has an effect only with --workers or --learners, and with neither "
                "--asynchronous nor --deterministic"
            )
        if experiment.deterministic and experiment.replay.capacity:
            raise ColobusError(
                "--deterministic with a replay buffer and --on ray: the buffer is saved with each "
                "checkpoint, and lives on another host than the run's folder; leave one of them out"
            )
        if experiment.replay.keep and not resumed:
            raise ColobusError(
                "--keep with --on ray: replay buffers live on other hosts than the run's folder; "
                "leave it out, and a resumed run fills them anew"
            )
        placement = place(devices, on_ray=True)
        check_limits(experiment, self._cluster, placement, resumed)
        return placement

    def prepare(self, experiment: Experiment, placement: Placement, log: Log) -> None:
        """Do nothing here."""

    def join(self, experiment: Experiment, stack: ExitStack, log: Log) -> None:
        """Join the cluster until the stack is left.

        Raises:
            ColobusError: if Ray is not installed, or the cluster cannot be joined or is too small.
        """
        if self.join_cluster(stack, self._cluster.object_store * 2**20 or store_bytes(experiment)):
            from colobus.runtime.ray import has_token
            from colobus.runtime.ray.placement import memory_of_cluster

            if not self._cluster.patience:  # else more hosts may come
                check_cluster_memory(experiment, self._cluster, memory_of_cluster())
            if not has_token():
                log(
                    "Ray's token authentication is off (RAY_AUTH_MODE): whoever reaches a port of "
                    "the cluster can run code on it"
                )

    def join_cluster(self, stack: ExitStack, store: int = 500_000_000) -> str:
        """Join the cluster until the stack is left; return its address, "" for an own one.

        An own one has an object store of so many bytes.
        """
        from colobus.runtime.ray import prepare as prepare_ray

        address = prepare_ray(self._cluster.address)
        try:
            from colobus.runtime.ray.session import connected
        except ImportError as error:
            raise not_installed("--on ray", error, "cluster") from None
        self._alive = stack.enter_context(connected(self._cluster, store))
        return address

    def hosts(self, stack: ExitStack) -> tuple[dict[str, Room], dict[str, str]]:
        """Join the cluster; return what each host has, and Ray's names of hosts by their own."""
        self.join_cluster(stack)
        from colobus.runtime.ray.placement import hosts_by_name, hosts_there

        return hosts_there(), hosts_by_name()

    def tell(self, status: Status) -> None:
        """Pass the status on to Ray's exporter for Prometheus."""
        if self._exported:
            self._exported.tell(status)

    def elsewhere(self, what: str, log: Log) -> Errand | None:
        """Return what sends the errands of a sidecar to another host, if they are to be apart."""
        if not self._cluster.sidecars_apart:
            return None
        from colobus.runtime.ray.placement import hosts_by_name
        from colobus.runtime.ray.remote import Errands

        known, asked = hosts_by_name(), places(self._cluster.place).values()
        there = [known[one] for kind, own in asked if kind == what for one in own if one in known]
        return Errands(what, self._cluster.beside, log, there)

    def launch(self, plan: Plan, status: Callable[[], Status]) -> tuple[RoleGraph, Runtime]:
        """Place the processes in the cluster."""
        from colobus.runtime.ray.placement import Incarnation
        from colobus.runtime.ray.runtime import Ray
        from colobus.runtime.ray.session import Prometheus, is_on_network

        if self._cluster.joined:
            self._exported = Prometheus(str(plan.folder))
        experiment, on_network = plan.experiment, bool(self._cluster.joined) and is_on_network()

        def events(event: dict[str, Any]) -> None:
            plan.events(plan.began + runtime.processes.late)(event)

        def incarnation(start: Start) -> Incarnation:
            where = (start, plan.folder.resolve(), plan.began, on_network)
            make = partial(graph_in_process, plan.make, plan.placement, experiment, *where)
            return Incarnation(start.version.incarnation, make, bool(plan.placement.gpus))

        begun, told = plan.start, Status()  # where the roles began last, and what was known then

        def restore(number: int) -> Incarnation:
            nonlocal begun, told
            tracker: Tracker = runtime.roles["tracker"]
            with suppress(Lost, Closed, OSError):  # it finishes the checkpoint that it writes
                tracker.finish()
            start, heard = _restored(plan, number), status()
            if heard is told:  # they were lost again before they told anything
                heard = Status(steps=begun.steps, version=begun.version.number)
            _tell_loss(plan, begun, start, heard, events)
            begun, told = start, status()
            return incarnation(start)

        first = incarnation(plan.start)
        runtime = Ray(
            first,
            restore,
            self._cluster,
            experiment.shape.deadline,
            plan.log,
            events,
            whole=experiment.deterministic,
            alive=self._alive,
            disk_patience=experiment.tracker.disk_patience,
            memory=role_memory(experiment) if self._cluster.joined else {},
        )
        return first.make_graph(), runtime


def _restored(plan: Plan, number: int) -> Start:
    """Return where a run goes on after a loss: at its newest checkpoint, or anew without one.

    Its incarnation is above ``number``, in which a process was lost.
    """
    first = plan.start
    if any(map(is_there, list_checkpoints(plan.folder / CHECKPOINTS))):
        start = begin_again(plan.folder, plan.config, plan.log)
    else:
        plan.log("there is no checkpoint yet: beginning anew")
        start = first
        if plan.experiment.deterministic:
            cut_lines(plan.folder, start.version.number, start.steps)
    seconds = first.counters.get("seconds", 0.0)  # the time since then is in `began`
    version = start.version._replace(incarnation=max(start.version.incarnation, number + 1))
    return replace(start, version=version, counters=start.counters | {"seconds": seconds})


def _tell_loss(
    plan: Plan, begun: Start, start: Start, status: Status, events: Callable[[dict[str, Any]], None]
) -> None:
    """Tell what is lost by going on from a start, by the last status of roles begun at another."""
    lost, workers = max(status.steps - start.steps, 0), status.workers
    kept = min(max(status.steps - begun.steps, 0), plan.experiment.replay.capacity)
    if kept and workers is not None:
        # a learner that stands alone reports the steps of all buffers, a central one none
        kept = round(workers.queue) * max(plan.experiment.shape.workers, 1)
    events(
        {"event": "restored", "epoch": start.version.incarnation, "steps": start.steps}
        | {"version": start.version.number, "lost_steps": lost}
        | {"lost_versions": max(status.version - start.version.number, 0), "lost_experience": kept}
    )
    plan.log(f"{lost:,} steps since then are lost and played anew")
    if plan.experiment.replay.capacity:
        plan.log(f"all replay buffers begin empty: they kept {kept:,} steps")


def graph_in_process(
    make: Callable[..., RoleGraph],
    placement: Placement,
    experiment: Experiment,
    start: Start,
    folder: Path | None,
    began: float | None,
    on_network: bool = False,
    gpu: bool = False,
    late: float = 0.0,
) -> RoleGraph:
    """Return the graph of a run as a process makes it, on CPUs unless it was given a GPU.

    ``make`` makes graphs, as the driver has it; ``placement`` is that of a process with a GPU;
    ``late`` are seconds of waiting for hosts, which are no part of the training. The other
    arguments are those of `colobus.training.topology.make_graph`.

    Raises:
        ColobusError: if torch cannot use the GPU.
    """
    own = placement if gpu else ON_CPU._replace(act_with=placement.act_with)
    for device in own.gpus:
        find_device(str(device))  # torch may be unable to use it
    prepare(own, experiment.deterministic)
    began = None if began is None else began + late
    return make(experiment, start, folder, began, spread=True, placement=own, on_network=on_network)
