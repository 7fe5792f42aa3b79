"""Whole runs of workers in which a role raises once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from conftest import distributed_catch
from gelada.algorithms.a3c import A3C
from gelada.core.types import Version
from gelada.envs.catch import CatchGames
from gelada.roles.parameters.server import ParameterServer
from outcomes import assert_same, inline, place_threads, run_to_the_end


def fail_once(function: Any, at: int, error: str) -> Any:
    """Return the function that raises at one of its calls, by any thread."""
    lock, calls = threading.Lock(), [0]

    def called(*arguments: Any, **more: Any) -> Any:
        with lock:
            calls[0] += 1
            now = calls[0]
        if now == at:
            raise RuntimeError(error)
        return function(*arguments, **more)

    return called


@pytest.mark.parametrize("where", ["loss", "push", "pull"])
def test_a_learner_that_raises_is_restarted_and_the_run_ends_as_if_nothing_had_been(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    experiment = distributed_catch(20, workers=3)
    oracle = inline(experiment)
    kind: Any = A3C if where == "loss" else ParameterServer
    monkeypatch.setattr(kind, where, fail_once(getattr(kind, where), 31, "by accident"))
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    assert len(lines) == 1
    assert lines[0].startswith("learner-")
    assert lines[0].endswith(": RuntimeError: by accident; restarted (1 of 5)")
    assert found.version == Version(0, 20)
    assert_same(oracle, found)


def test_an_actor_that_raises_is_restarted_and_its_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = distributed_catch(20, workers=3)
    step: Any = CatchGames.step
    monkeypatch.setattr(CatchGames, "step", fail_once(step, 300, "the emulator is gone"))
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    assert len(lines) == 1
    assert lines[0].startswith("actor-")
    assert "RuntimeError: the emulator is gone; restarted (1 of 5)" in lines[0]
    assert found.version == Version(0, 20)
    assert found.status.steps == 504 + 20 * 3 * 72  # the lost trajectory was played anew
    assert found.status.workers is not None
    assert found.status.workers.traffic.dropped == 0
