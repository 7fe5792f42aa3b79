"""Names of devices, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch

import colobus
from colobus.core.errors import ColobusError
from colobus.experiment.memory import check_limits
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.nets.network import gpu_precision
from colobus.runs.config import read_config
from colobus.runtime import devices
from colobus.runtime.devices import (
    CAPTURING,
    CPU,
    ON_CPU,
    WARM_UP,
    CudaGraph,
    Devices,
    Placement,
    Recorded,
    find_device,
    is_gpu,
    place,
)
from conftest import reshaped, short_pong, tuned
from helpers.launching import QUIET, refused
from helpers.tapes import taped as taped

GPU, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)


def test_devices_have_the_names_of_torch_and_graphs_are_of_a_gpu(two_gpus: None) -> None:
    assert [find_device(name) for name in ("cpu", "cuda", "cuda:1")] == [CPU, GPU, SECOND]
    assert place(Devices()) == ON_CPU
    assert place(Devices("cuda")) == Placement(GPU, GPU, True)
    assert place(Devices("cuda:1")) == Placement(SECOND, SECOND, True)
    assert place(Devices("cuda", "cpu")) == Placement(GPU, CPU, True)
    assert place(Devices("cpu", "cuda")) == Placement(CPU, GPU, False)
    assert not place(Devices("cuda", cuda_graphs=False)).cuda_graphs
    assert place(Devices("cuda")).acts_by_graph
    assert not place(Devices("cuda", "cpu")).acts_by_graph
    assert place(Devices("cuda", "cpu")).gpus == [GPU]
    assert ON_CPU.gpus == []


def test_onnx_runtime_acts_on_the_cpu_only(two_gpus: None) -> None:
    with pytest.raises(ColobusError, match="computes on the CPU; add --act-device cpu"):
        place(Devices("cuda", act_with="onnx"))
    assert place(Devices("cuda", "cpu", act_with="onnx")).act_with == "onnx"


def test_auto_is_a_gpu_if_there_is_one(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert place(Devices("auto")) == ON_CPU
    assert not is_gpu("auto")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert place(Devices("auto", "cpu")) == Placement(GPU, CPU, True)
    assert is_gpu("auto")
    assert place(Devices("auto"), on_ray=True) == ON_CPU  # its processes have none
    assert not place(Devices("cpu", "cuda")).cuda_graphs


@pytest.mark.parametrize(
    ("preset", "moves"),
    [("pqn-catch", "gamma_end"), ("pqn-catch", "lam_end"), ("dqn-pong", "munchausen_end")],
)
def test_numbers_that_move_are_not_recorded(preset: str, moves: str) -> None:
    base = PRESETS[preset]
    assert base.algorithm.fits_cuda_graph
    assert not tuned(base, **{moves: 0.9}).fits_cuda_graph


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "cuda:1000", "meta", "CUDA"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ColobusError, match=r"must be auto, cpu, cuda or cuda:N, such as cuda:0$"):
        find_device(name)


def test_a_gpu_that_is_absent_is_refused(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, name, said in (
        (2, "cuda:3", "there are 2 GPUs, cuda:0 to cuda:1$"),
        (1, "cuda:1", "there is 1 GPU, cuda:0$"),
        (0, "cuda", "torch finds no GPU on this machine"),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", Mock(return_value=gpus))
        with pytest.raises(ColobusError, match=rf"^--device {name}: {said}"):
            find_device(name)


def test_in_a_cluster_learners_get_gpus_and_actors_compute_on_cpus(no_cuda: None) -> None:
    assert place(Devices("cuda"), on_ray=True) == Placement(GPU, CPU, True)  # there are none here
    assert place(Devices("cuda", "cpu", True), on_ray=True) == Placement(GPU, CPU, True)
    assert place(Devices(), on_ray=True) == ON_CPU
    with pytest.raises(ColobusError, match=r"^--act-device cuda with --on ray: actors compute on"):
        place(Devices("cuda", "cuda"), on_ray=True)
    with pytest.raises(ColobusError, match=r"^--device cuda:1 with --on ray: .*use --device cuda$"):
        place(Devices("cuda:1"), on_ray=True)


def test_each_learner_of_a_group_has_the_next_gpu() -> None:
    own, other = torch.device("cuda", 2), torch.device("cuda", 5)
    assert Placement(GPU, GPU).of(2) == Placement(own, own)
    assert Placement(GPU, CPU, True).of(2) == Placement(own, CPU, True)
    assert Placement(GPU, other).of(2) == Placement(own, other)
    assert ON_CPU.of(2) == ON_CPU


def group(learners: int) -> Experiment:
    return reshaped(PRESETS["catch"], learners=learners, reduce="group")


def test_a_group_needs_a_gpu_per_learner(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Mock(return_value=(2**34, 2**34))
    monkeypatch.setattr(torch.cuda, "mem_get_info", room)
    check_limits(group(2), placement=Placement(GPU, GPU))
    assert room.call_args_list == [call(GPU), call(SECOND)]
    said = (
        r"^--learners 3 with --device cuda:0: each learner .* GPU of its own, 3 in all, .* are 2;"
    )
    with pytest.raises(ColobusError, match=said):
        check_limits(group(3), placement=Placement(GPU, GPU))
    with pytest.raises(ColobusError, match=r"^--learners 2 with --device cuda:1: .* there are 1;"):
        check_limits(group(2), placement=Placement(SECOND, CPU))


def test_a_gpu_without_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * 2**20, 2**34))
    said = r"^--device cuda:0: the run needs about [\d,]+ MiB of its memory, most of it for .*3 MiB"
    with pytest.raises(ColobusError, match=said):
        check_limits(short_pong(1), placement=Placement(GPU, CPU))
    check_limits(short_pong(1), placement=Placement(CPU, GPU))


@pytest.mark.parametrize(("major", "precision"), [(7, "float32"), (8, "bfloat16")])
def test_new_gpus_use_bfloat16(monkeypatch: pytest.MonkeyPatch, major: int, precision: str) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 6))
    assert gpu_precision(GPU) == precision


def test_float32_is_float32_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # torch stub
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    before = convolutions.fp32_precision
    try:
        convolutions.fp32_precision = "tf32"
        devices.prepare(ON_CPU, deterministic=True)
        assert convolutions.fp32_precision == "tf32"
        assert asked == []
        devices.prepare(Placement(GPU, GPU), deterministic=False)
        assert convolutions.fp32_precision == "ieee"
        assert asked == []
        devices.prepare(Placement(CPU, GPU), deterministic=True)
        assert asked == [True]
    finally:
        convolutions.fp32_precision = before


@pytest.mark.parametrize(
    "words",
    ["train catch --device cuda", "train catch --act-device cuda:1", "bench catch --device cuda"],
)
def test_the_command_line_refuses_in_one_line_and_leaves_no_folder(
    words: str, no_cuda: None, here: Path
) -> None:
    what = f"{words.split(' ', 2)[2]}: torch {torch.__version__} is built without CUDA"
    assert refused(*words.split()).startswith(f"colobus: {what}")
    assert list(here.iterdir()) == []


def test_a_run_says_where_it_was_trained(tmp_path: Path) -> None:
    colobus.train("catch", tmp_path / "run", steps=1_500, device="cpu", **QUIET)
    about = read_config(tmp_path / "run").about
    assert (about["device"], about["act_device"]) == ("cpu", "cpu")
    agent = colobus.load(tmp_path / "run", device="cpu")
    assert agent.device == CPU


def doubled(values: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
    return 2.0 * values if more is None else 2.0 * values + more


@pytest.mark.slow
def test_a_function_is_recorded_after_some_calls_and_then_replayed(taped: list[Any]) -> None:
    function, found = Recorded(doubled), []
    for i in range(WARM_UP + 3):
        found.append(function(torch.full((3,), float(i)), torch.tensor(1.0)).clone())
        assert len(taped) == int(i >= WARM_UP)
    assert [one.tolist() for one in found] == [[2.0 * i + 1.0] * 3 for i in range(WARM_UP + 3)]
    assert taped[0].replays == 3


def test_other_shapes_are_computed_as_before(taped: list[Any]) -> None:
    function = Recorded(doubled, warm_up=1)
    for size in (2, 3, 3, 2, 3):
        result = function(torch.ones(size), None)
        assert result.tolist() == [2.0] * size
        assert function.owns(result) == bool(taped and size == 3)
    assert [tape.replays for tape in taped] == [2]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    @contextmanager
    def graph(made: Mock, **how: Any) -> Iterator[None]:
        calls.append({"graph": made, "alone": CAPTURING.locked(), **how})
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "this role's")
    return calls


def test_torch_records_on_the_roles_stream_one_graph_at_a_time(asked: list[dict[str, Any]]) -> None:
    recorded = CudaGraph(lambda: 7)
    (how,) = asked
    graph = how.pop("graph")
    assert how == {"alone": True, "stream": "this role's", "capture_error_mode": "thread_local"}
    assert not CAPTURING.locked()
    graph.replay.assert_not_called()
    recorded.replay()
    graph.replay.assert_called_once_with()
    assert recorded.result == 7


def test_what_cannot_be_recorded_is_said_in_one_line(asked: list[dict[str, Any]]) -> None:
    error = RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors")
    said = (
        r"^a step of this run cannot be recorded as a CUDA graph: operation not .* capturing; "
        r"add --no-cuda-graphs$"
    )
    with pytest.raises(ColobusError, match=said):
        CudaGraph(Mock(side_effect=error))
    assert not CAPTURING.locked()
