"""Recording: when a function is recorded, with which memory, and how torch is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from gelada.core.errors import GeladaError
from gelada.runtime.devices import CAPTURING, WARM_UP, CudaGraph, Recorded
from helpers.tapes import taped as taped


def doubled(values: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
    return 2.0 * values if more is None else 2.0 * values + more


@pytest.mark.slow
def test_a_function_is_recorded_after_some_calls_and_replayed_from_then_on(
    taped: list[Any],
) -> None:
    function, found = Recorded(doubled), []
    for i in range(WARM_UP + 3):
        found.append(function(torch.full((3,), float(i)), torch.tensor(1.0)).clone())
        assert len(taped) == int(i >= WARM_UP)
    assert [one.tolist() for one in found] == [[2.0 * i + 1.0] * 3 for i in range(WARM_UP + 3)]
    assert taped[0].replays == 3


def test_results_of_replays_are_in_the_same_memory(taped: list[Any]) -> None:
    function = Recorded(doubled, warm_up=0)
    first = function(torch.ones(2), None)
    assert function.owns(first)
    assert function(torch.zeros(2), None) is first
    assert first.tolist() == [0.0, 0.0]


def test_other_shapes_are_computed_as_before(taped: list[Any]) -> None:
    function = Recorded(doubled, warm_up=1)
    for size in (2, 3, 3, 2, 3):
        result = function(torch.ones(size), None)
        assert result.tolist() == [2.0] * size
        assert function.owns(result) == bool(taped and size == 3)
    assert [tape.replays for tape in taped] == [2]


def test_numbers_of_the_host_are_those_of_the_recording(taped: list[Any]) -> None:
    scale = [1.0]
    function = Recorded(lambda values: scale[0] * values, warm_up=0)
    assert function(torch.ones(1)).item() == 1.0
    scale[0] = 5.0
    assert function(torch.ones(1)).item() == 1.0  # as with a CUDA graph


class TorchGraph:
    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what torch is asked to record."""
    calls: list[dict[str, Any]] = []

    @contextmanager
    def graph(made: TorchGraph, **how: Any) -> Iterator[None]:
        calls.append({"graph": made, "alone": CAPTURING.locked(), **how})
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", TorchGraph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "this role's")
    return calls


def test_torch_records_on_the_stream_of_the_role_one_graph_at_a_time(
    asked: list[dict[str, Any]],
) -> None:
    recorded = CudaGraph(lambda: 7)
    (how,) = asked
    assert how.pop("graph").replays == 0
    assert how == {"alone": True, "stream": "this role's", "capture_error_mode": "thread_local"}
    assert not CAPTURING.locked()
    recorded.replay()
    assert recorded.result == 7


def test_what_cannot_be_recorded_is_said_in_one_line(asked: list[dict[str, Any]]) -> None:
    def work() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors")

    said = (
        r"^a step of this run cannot be recorded as a CUDA graph: operation not .* capturing; "
        r"add --no-cuda-graphs$"
    )
    with pytest.raises(GeladaError, match=said):
        CudaGraph(work)
    assert not CAPTURING.locked()
