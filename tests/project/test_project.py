"""What stands beside the code: citation, changes, containers, reference, automatic checks."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import colobus
from colobus.cli.experiment_flags import resolve
from colobus.cli.show import imagined_start
from colobus.cli.train import Train
from colobus.runtime.groups import group_processes
from colobus.training.topology import make_graph

ROOT = Path(__file__).resolve().parents[2]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text_of("pyproject.toml"))["project"]
    return found


def releases() -> list[tuple[Version, str]]:
    """Return (version, date) of each release in CHANGELOG.md, as they stand there."""
    found = re.findall(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"), re.M)
    return [(Version(version), date) for version, date in found]


FIELDS = "abstract authors cff-version date-released keywords license message title type version"
"""The fields of the Citation File Format 1.2.0 that are used here; most of them are texts."""


def test_the_citation_is_of_the_newest_release() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    others = {"authors": list, "date-released": datetime.date, "keywords": list}
    assert sorted(citation) == FIELDS.split()
    for name, value in citation.items():
        assert isinstance(value, others.get(name, str)), name
        assert value, name
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["license"] == project()["license"]
    assert citation["authors"] == project()["authors"]  # each {"name": ...}: an entity
    assert all(isinstance(word, str) for word in citation["keywords"])
    assert len(set(citation["keywords"])) == len(citation["keywords"])
    newest = (Version(citation["version"]), citation["date-released"].isoformat())
    assert newest == releases()[0]


def test_changes_are_in_order() -> None:
    headings = re.findall(r"^## (.*)$", text_of("CHANGELOG.md"), re.M)
    assert headings[0] == "[Unreleased]"
    assert len(headings) == 1 + len(releases())
    versions = [version for version, _ in releases()]
    assert all(newer > older for newer, older in pairwise(versions))
    parts = set(re.findall(r"^### (.*)$", text_of("CHANGELOG.md"), re.M))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert Version(colobus.__version__) >= versions[0]


def test_the_reference_has_every_public_name_once() -> None:
    names = re.findall(r"^\.\. auto\w+:: colobus\.(\w+)$", text_of("docs/site/reference.md"), re.M)
    assert sorted([*names, "__version__"]) == sorted(colobus.__all__)


def test_every_extra_is_on_the_page_about_installing() -> None:
    extras = re.findall(r"^\| `pip install '\.\[(\w+)\]'`", text_of("docs/install.md"), re.M)
    assert sorted(extras) == sorted(project()["optional-dependencies"])


@pytest.mark.processes
def test_the_container_is_made_of_what_is_there() -> None:
    text = text_of("Containerfile").replace("\\\n", " ")
    lines = re.findall(r"^COPY (?!--from)(.*)$", text, re.M)
    copied = {word for line in lines for word in line.split()[:-1]}
    assert {"pyproject.toml", "src", "constraints.txt"} <= copied
    let_in = {line[1:] for line in text_of(".containerignore").splitlines() if line[:1] == "!"}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    needed = {project()["readme"], *project()["license-files"]}
    assert needed <= copied  # the wheel cannot be built without them
    pythons = re.findall(r"^FROM \S*python:([\d.]+)", text, re.M)
    assert len(pythons) == 2
    assert all(version in SpecifierSet(project()["requires-python"]) for version in pythons)
    (wheel,) = re.findall(r"/tmp/wheels/(\w+)-\*\.whl", text)
    assert wheel == project()["name"].replace("-", "_")
    extras = {extra for words in re.findall(r"EXTRAS=([\w,]+)", text) for extra in words.split(",")}
    assert {"page", "jobs"} <= extras <= set(project()["optional-dependencies"])
    for line in re.findall(r"^RUN (.*)$", text, re.M):
        subprocess.run(["sh", "-n", "-c", line], check=True)
    assert re.search(r"\*jobs\*\).*install.* wget ", text)  # with which Kubernetes asks
    (command,) = re.findall(r'^ENTRYPOINT \["([^"]+)"\]$', text, re.M)
    assert command in project()["scripts"]


def test_the_automatic_checks_are_targets_that_contributors_are_told() -> None:
    rules = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    run = text_of(".ci/run")
    (targets,) = re.findall(r"^for target in (.*); do$", run, re.M)
    checked = {*targets.split(), *re.findall(r"^stage (\S+) &$", run, re.M)}
    assert {"test", "package", "docs", "test-cluster", "test-browser"} == checked <= rules
    told = set(re.findall(r"^make (\S+)", text_of("CONTRIBUTING.md"), re.M))
    assert told == checked | {"setup", "check", "test-long"}
    hooks = yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert {word for hook in hooks for word in hook["entry"].split()[1:]} <= rules
    (phony,) = re.findall(r"^\.PHONY: (help .*)$", text_of("Makefile").replace("\\\n", ""), re.M)
    assert set(phony.split()) == rules


@pytest.mark.processes
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_tests_fail_if_they_are_asked_for() -> None:
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-x", "tests/runtime/test_gpu.py"]
    asked = {**os.environ, "COLOBUS_TEST_GPU": "1"}
    done = subprocess.run(words, cwd=ROOT, env=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no CUDA device" in done.stdout
    recipe = (ROOT / "Makefile").read_text().partition("test-gpu: setup\n\t")[2].splitlines()[0]
    assert recipe == "COLOBUS_TEST_GPU=1 $(BIN)/python -m pytest -m gpu"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("code", [0, 7])
def test_what_pip_says_is_in_a_file_and_shown_after_a_failure(code: int, tmp_path: Path) -> None:
    """With a stand-in for the environment's Python, whose last installation may fail."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text(text_of(name))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "a flood $*"\ncase "$*" in *--group*) exit {code};; esac\n')
    python.chmod(0o755)
    done = subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode != 0) == (code != 0)
    assert ("a flood" in done.stdout) == (code != 0)
    assert "installing torch into .venv; it is large (log: .venv/install.log)\n" in done.stdout
    assert (tmp_path / ".venv" / "install.log").read_text().startswith("a flood -m pip install")
    assert (tmp_path / ".venv" / ".installed").exists() == (code == 0)


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


def bytes_of(text: str) -> float:
    """Return the bytes of a size such as 2Gi."""
    return float(text.removesuffix("Gi")) * 2**30


def test_kuberay_takes_the_job_and_would_not_take_mistakes() -> None:
    """Of its schema there is, of pods, only what is usual."""
    schema = json.loads(text_of("tests/data/kuberay/rayjob-1.7.0.json"))["schema"]
    _, job = yaml.safe_load_all(text_of("deploy/rayjob.yaml"))
    assert breaches(job, schema) == []
    cluster = job["spec"]["rayClusterSpec"]
    cluster["authOptions"]["mode"] = "tokens"
    cluster["workerGroupSpecs"][0]["minReplicas"] = "4"
    cluster["headGroupSpec"]["templates"] = cluster["headGroupSpec"].pop("template")
    del cluster["workerGroupSpecs"][0]["groupName"]
    found = breaches(job, schema)
    assert len(found) == 5, found
    wrong = ["'tokens'", "'4' is no integer", "templates is unknown", "template is missing"]
    for what in (*wrong, "groupName is missing"):
        assert any(what in one for one in found)


def test_the_job_is_a_run_that_goes_on_and_has_room() -> None:
    volume, job = yaml.safe_load_all(text_of("deploy/rayjob.yaml"))
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
    for one in (cluster["headGroupSpec"], group):  # Ray's object store is as large as it says
        pod = one["template"]["spec"]
        limit = bytes_of(pod["containers"][0]["resources"]["limits"]["memory"])
        store = int(one["rayStartParams"].get("object-store-memory", 0.3 * limit))
        (shm,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
        assert store <= bytes_of(shm["emptyDir"]["sizeLimit"])
    room = group["replicas"] * int(worker["resources"]["limits"]["cpu"])
    experiment = wanted.experiment
    specs = group_processes(make_graph(experiment, imagined_start(experiment), None), 1)
    assert sum(spec.kind == "worker" for spec in specs) <= room
    pinned = re.search(r"^ray==(.*)$", text_of("constraints.txt"), re.M)
    assert pinned is not None
    assert pinned[1] == cluster["rayVersion"]
    for container in (head, worker):
        assert container["image"] == "REGISTRY/colobus"
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
