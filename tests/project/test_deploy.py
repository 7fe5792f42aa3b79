"""The job for Kubernetes: KubeRay takes it, and it is what the pages say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from colobus.cli.experiment_flags import resolve
from colobus.cli.show import imagined_start
from colobus.cli.train import Train
from colobus.runtime.groups import group_processes
from colobus.training.topology import make_graph

ROOT = Path(__file__).parents[2]
TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def breaches(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """Return what a value has that the schema of a Kubernetes resource does not allow."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{where}: no number or text"]
    kind = TYPES.get(schema.get("type", ""), object)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return [f"{where}: {value!r} is no {schema['type']}"]
    found = [f"{where}: {value!r}"] if value not in schema.get("enum", [value]) else []
    if isinstance(value, list):
        for number, one in enumerate(value):
            found += breaches(one, schema["items"], f"{where}[{number}]")
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        missing = set(schema.get("required", ())) - set(value)
        found += [f"{where}: {name} is missing" for name in sorted(missing)]
        for name, one in value.items() if known or others else ():  # else it takes any object
            rule = known.get(name, others)
            inner = f"{where}.{name}"
            found += breaches(one, rule, inner) if rule else [f"{inner} is unknown"]
    return found


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the volume and the job."""
    volume, job = yaml.safe_load_all((ROOT / "deploy" / "rayjob.yaml").read_text())
    return volume, job


def schema() -> dict[str, Any]:
    """Return KubeRay's schema of a job; of pods only what is usual."""
    text = (ROOT / "tests" / "data" / "kuberay" / "rayjob-1.7.0.json").read_text()
    found: dict[str, Any] = json.loads(text)["schema"]
    return found


def test_kuberay_takes_the_job() -> None:
    _, job = documents()
    assert breaches(job, schema()) == []


def test_the_check_finds_what_is_wrong() -> None:
    _, job = documents()
    cluster = job["spec"]["rayClusterSpec"]
    cluster["authOptions"]["mode"] = "tokens"
    cluster["workerGroupSpecs"][0]["minReplicas"] = "4"
    cluster["headGroupSpec"]["templates"] = cluster["headGroupSpec"].pop("template")
    del cluster["workerGroupSpecs"][0]["groupName"]
    found = breaches(job, schema())
    assert len(found) == 5, found
    for what in ("'tokens'", "'4' is no integer", "templates is unknown", "template is missing"):
        assert any(what in one for one in found)
    assert any("groupName is missing" in one for one in found)


def test_the_job_is_a_run_that_goes_on_and_has_room() -> None:
    volume, job = documents()
    cluster = job["spec"]["rayClusterSpec"]
    program, command, *words = job["spec"]["entrypoint"].split()
    assert (program, command) == ("colobus", "train")
    wanted = resolve(Train, "train", words)
    assert wanted.flags.resume_or_start
    assert job["spec"]["backoffLimit"] > 0
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in head["volumeMounts"]}
    assert wanted.flags.out.is_relative_to(places["runs"])
    claims = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert claims[0]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    (group,) = cluster["workerGroupSpecs"]
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
    (worker,) = group["template"]["spec"]["containers"]
    room = group["replicas"] * int(worker["resources"]["limits"]["cpu"])
    experiment = wanted.experiment
    specs = group_processes(make_graph(experiment, imagined_start(experiment), None), 1)
    assert sum(spec.kind == "worker" for spec in specs) <= room
    pinned = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    assert pinned[1] == cluster["rayVersion"]
    for container in (head, worker):
        assert container["image"] == "REGISTRY/colobus"
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
