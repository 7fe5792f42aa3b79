"""What a Ray cluster must offer to a run: CPUs and GPUs, and the same versions on all hosts."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from gelada.core.errors import GeladaError
from gelada.runtime.groups import Cluster, ProcessSpec
from gelada.runtime.host import versions
from gelada.runtime.ray.watched import ACTIVE, WatchedProcess, cpus_of


def check_resources(specs: Sequence[ProcessSpec], cluster: Cluster) -> None:
    """Raise GeladaError if the cluster has not enough free CPUs and GPUs for all processes."""
    all_there, all_free = ray.cluster_resources(), ray.available_resources()
    gpus = sum(spec.gpus for spec in specs)
    there, free = (resources.get("GPU", 0.0) for resources in (all_there, all_free))
    if gpus > free:
        raise GeladaError(
            f"--device cuda: the run asks for {gpus} GPUs, one for each process that learns, the "
            f"cluster has {there:g}, {free:g} of them free; use fewer learners, or --device cpu, "
            "with which Gloo adds up the gradients of a group"
        )
    wanted = sum(cpus_of(spec, cluster) for spec in specs)
    there, free = (resources.get("CPU", 0.0) for resources in (all_there, all_free))
    if wanted > free:
        count = sum(spec.kind in ACTIVE for spec in specs)
        raise GeladaError(
            f"the run asks for {wanted:g} CPUs ({count} processes, --cpus {wanted / count:g} "
            f"each), the cluster has {there:g}, {free:g} of them free; lower --cpus, raise "
            "--per-process, or take more hosts"
        )


def check_versions(process: WatchedProcess) -> None:
    """Raise GeladaError if the host of a process has other versions than this one."""
    here = versions()
    for name, version in (process.about.versions if process.about else {}).items():
        if version != here[name]:
            raise GeladaError(
                f"{process} has {name} {version}, here it is {here[name]}: install the same on "
                "all hosts"
            )


def memory_of_cluster() -> int:
    """Return the bytes of memory that the hosts of the cluster have for processes."""
    return int(ray.cluster_resources().get("memory", 0.0))
