"""Runs on Ray that end with their test, and Ray itself as a run imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from colobus.runtime.ray import prepare
from helpers.ray_runs import Begin, Run, train


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begin a run (`train`, or `Run` itself); none outlives the test."""
    runs: list[Run] = []

    def begin(*words: object, make: Callable[..., Run] = train, **more: Any) -> Run:
        runs.append(make(tmp_path, *words, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


@pytest.fixture
def ray() -> Any:
    """Return Ray, which must not be imported before it is prepared."""
    prepare("")
    import ray

    return ray


@pytest.fixture
def remote(ray: Any) -> Any:
    """Return the module that knows the processes of a run, which imports Ray."""
    from colobus.runtime.ray import remote

    return remote


def imported(monkeypatch: pytest.MonkeyPatch, everywhere: bool, asks: bool = True) -> None:
    """Let Ray have been imported with these ports, and let it ask for tokens."""
    tokens = ModuleType("ray._private.authentication.authentication_utils")
    vars(tokens)["is_token_auth_enabled"] = lambda: asks
    monkeypatch.setitem(sys.modules, tokens.__name__, tokens)
    constants = ModuleType("ray._private.ray_constants")
    vars(constants)["ENABLE_RAY_CLUSTER"] = everywhere
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", constants)
