"""What stands beside the code: citation, changes, container, reference, automatic checks."""

from __future__ import annotations

import datetime
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


FIELDS = {
    "cff-version": str,
    "message": str,
    "title": str,
    "authors": list,
    "type": str,
    "abstract": str,
    "version": str,
    "date-released": datetime.date,
    "license": str,
    "keywords": list,
}
"""The fields of the Citation File Format 1.2.0 that are used here. The first four must be there."""


def test_the_citation_is_of_the_newest_release() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert list(FIELDS)[:4] == [name for name in FIELDS if name in citation][:4]
    for name, value in citation.items():
        assert isinstance(value, FIELDS[name]), name
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
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M)
        for word in line.split()[:-1]
    ]
    assert {"pyproject.toml", "src", "constraints.txt"} <= set(copied)
    let_in = {line[1:] for line in text_of(".containerignore").splitlines() if line[:1] == "!"}
    assert set(copied) == let_in
    assert all((ROOT / name).exists() for name in copied)
    needed = {project()["readme"], *project()["license-files"]}
    assert needed <= set(copied)  # the wheel cannot be built without them
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
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "COLOBUS_TEST_GPU": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
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
    assert "installing torch into .venv; it is large (log: .venv/install.log)\n." in done.stdout
    assert (tmp_path / ".venv" / "install.log").read_text().startswith("a flood -m pip install")
    assert (tmp_path / ".venv" / ".installed").exists() == (code == 0)
