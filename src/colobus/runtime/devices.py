"""Devices: which one learns and which one acts, and what a role's thread needs on a GPU.

On a device are the learner's parameters, gradients and optimizer, its batches, and the actors'
networks. Trajectories and published parameters are in the memory of the host, so no actor waits for
the GPU of a learner, and a run that was trained on one device goes on on another.

A small network is many short operations, and to queue each takes the host longer than the GPU
needs for it. So what a function queues on a GPU is recorded once, as a CUDA graph, and queued by
one call from then on. A replay queues the same operations on the same memory: numbers of the host
are those of the recording, so whatever changes has to be a tensor on the device that is written
before.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import torch

from colobus.core.errors import ColobusError
from colobus.core.types import CPU as CPU  # with the other devices

AUTO = "auto"
"""Name of the first GPU, or of the CPU where there is none."""

ActWith = Literal["torch", "onnx"]
"""Libraries that can compute the actors' networks."""


@dataclass(frozen=True)
class Devices:
    """Which devices compute. They may differ from one start of a run to the next."""

    device: str = "cpu"
    """Device that learns: cpu, cuda, cuda:N for one of several GPUs, or auto for a GPU if there is
    one."""
    act_device: str = ""
    """Device that computes the actors' networks, likewise (default: the one that learns)."""
    cuda_graphs: bool = True
    """On a GPU, record the steps of learning and acting as CUDA graphs, which are queued by one
    call each. On a CPU it has no effect."""
    act_with: ActWith = "torch"
    """Library that computes the actors' networks: torch, or onnx for ONNX Runtime on the CPU, which
    rounds otherwise and takes less time for few games (pip install 'colobus[onnx]')."""


CAPTURING = threading.Lock()
"""Held while a CUDA graph is recorded: a process may record one at a time, and nothing may wait for
the whole device meanwhile."""


class Placement(NamedTuple):
    """The devices of a run, which exist."""

    learn: torch.device
    act: torch.device
    cuda_graphs: bool = False  # record what is computed on GPUs
    act_with: ActWith = "torch"

    @property
    def gpus(self) -> list[torch.device]:
        """The GPUs among them, each once."""
        return [one for one in dict.fromkeys((self.learn, self.act)) if one.type == "cuda"]

    def of(self, rank: int) -> Placement:
        """Return the devices of a group's learner and its actors: the next GPU for each."""
        if self.learn.type != "cuda":
            return self
        own = torch.device("cuda", (self.learn.index or 0) + rank)
        return self._replace(learn=own, act=own if self.act == self.learn else self.act)

    @property
    def acts_by_graph(self) -> bool:
        """Whether actors record their steps: where they are on a device such as the learner's."""
        return self.cuda_graphs and self.act.type == self.learn.type


ON_CPU = Placement(CPU, CPU)


def place(devices: Devices, on_ray: bool = False) -> Placement:
    """Return the devices that the settings name.

    Args:
        devices: the settings.
        on_ray: whether the roles live in processes of a Ray cluster.

    Raises:
        ColobusError: if there is no such device, or Ray cannot give it to the role.
    """
    if on_ray:
        learn, act = _place_on_ray(devices)
    else:
        learn = find_device(devices.device)
        act = find_device(devices.act_device, "--act-device") if devices.act_device else learn
    if devices.act_with == "onnx" and act.type != "cpu":
        raise ColobusError("--act-with onnx computes on the CPU; add --act-device cpu")
    return Placement(learn, act, devices.cuda_graphs and learn.type == "cuda", devices.act_with)


def _place_on_ray(devices: Devices) -> tuple[torch.device, torch.device]:
    """Return the devices of processes that learn and that act, whose GPUs may be on other hosts.

    Ray gives a process a GPU, which is the first that it sees.
    """
    if devices.act_device not in ("", "cpu", AUTO):
        raise ColobusError(
            f"--act-device {devices.act_device} with --on ray: actors compute on the CPUs of their "
            "processes; leave --act-device out"
        )
    if devices.device == "cuda":
        return torch.device("cuda", 0), CPU
    if devices.device.startswith("cuda:"):
        raise ColobusError(
            f"--device {devices.device} with --on ray: Ray chooses the GPU of each process that "
            "learns; use --device cuda"
        )
    return find_device("cpu" if devices.device == AUTO else devices.device), CPU


def is_gpu(name: str) -> bool:
    """Return whether a name is one of a GPU, whether that is there or not."""
    name = str(name)  # it may be a device of torch, also in `find_device`
    return name.startswith("cuda") or (name == AUTO and torch.cuda.is_available())


def find_device(name: str, flag: str = "--device") -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:N or auto.

    Raises:
        ColobusError: if there is no such device here; the message names the flag.
    """
    name = str(name)
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d{1,3}))?", name)
    if match is None:
        raise ColobusError(f"{flag} {name[:40]}: must be auto, cpu, cuda or cuda:N, such as cuda:0")
    if not is_gpu(name):
        return CPU
    if not torch.backends.cuda.is_built():
        raise ColobusError(
            f"{flag} {name}: torch {torch.__version__} is built without CUDA; install a build "
            f"with CUDA, or use {flag} cpu"
        )
    count, index = torch.cuda.device_count(), int(match[1] or 0)
    if count == 0:
        raise ColobusError(f"{flag} {name}: torch finds no GPU on this machine; use {flag} cpu")
    if index >= count:
        there = "there is 1 GPU, cuda:0" if count == 1 else f"there are {count} GPUs"
        last = "" if count == 1 else f", cuda:0 to cuda:{count - 1}"
        raise ColobusError(f"{flag} {name}: {there}{last}")
    return torch.device("cuda", index)


def prepare(placement: Placement, deterministic: bool) -> None:
    """Set what torch has for the whole process, before the first operation on a GPU.

    float32 means float32: by default cuDNN would round the inputs of convolutions to 10 bits
    (TF32). With ``deterministic`` torch takes algorithms that add up in a fixed order, and raises
    an error for an operation that has none.
    """
    if not placement.gpus:
        return
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]  # torch stub
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def describe_devices(placement: Placement, on_ray: bool = False) -> dict[str, str]:
    """Return what ``config.json`` says about the devices of a run's first start.

    Those of a cluster have no names here, as they are not in this process.
    """
    names = [torch.cuda.get_device_name(gpu) for gpu in placement.gpus if not on_ray]
    found = {"device": str(placement.learn), "act_device": str(placement.act)}
    return found | ({"gpu": ", ".join(names)} if names else {})


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads in the calling thread: few numbers, few threads."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Let the calling thread use a device, on a GPU with a stream of its own.

    Operations of one stream run one after the other. With a common stream an actor's step would
    wait for all minibatches that the learner has queued before it.
    """
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_device(device)  # of this thread
    with CAPTURING:
        torch.cuda.synchronize(device)  # what the thread that built the roles has queued is there
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        try:
            yield
        finally:
            stream.synchronize()  # other threads may read what is left


T = TypeVar("T")

WARM_UP = 3
"""Calls before a function is recorded, as in torch's documentation: libraries choose kernels and
take their memory in the first calls, which a recording does not allow."""


class CudaGraph(Generic[T]):
    """The operations of ``work``, recorded on the stream of this thread; nothing is computed yet.

    Errors of other threads that use the GPU meanwhile do not count (``thread_local``), and the
    backward pass, which has a thread of its own, is recorded with its stream.

    Args:
        work: queues operations on the current device; its results are tensors of fixed memory.

    Raises:
        ColobusError: if it does what cannot be recorded, such as reading a number from the GPU.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        with CAPTURING:
            try:
                with torch.cuda.graph(
                    self._graph, stream=stream, capture_error_mode="thread_local"
                ):
                    self.result = work()
            except RuntimeError as error:
                raise ColobusError(
                    "a step of this run cannot be recorded as a CUDA graph: "
                    f"{str(error).strip().splitlines()[0]}; add --no-cuda-graphs"
                ) from error

    def replay(self) -> None:
        """Queue the operations on the stream of this thread; `result` gets new content."""
        self._graph.replay()


@dataclass(eq=False)
class Recorded(Generic[T]):
    """A function of tensors: called as it is at first, then recorded, and replayed from then on.

    It is recorded for the shapes that came so often in a row; with others it is called as before.
    What a replay returns is the same memory each time.
    """

    function: Callable[..., T]  # of tensors on the device, some of which may be None
    warm_up: int = WARM_UP  # calls with the same shapes before it is recorded

    def __post_init__(self) -> None:
        self._seen = 0
        self._shapes: list[object] = []
        self._inputs: list[torch.Tensor | None] = []
        self._graph: CudaGraph[T] | None = None

    def __call__(self, *inputs: torch.Tensor | None) -> T:
        """Return what the function returns for ``inputs``."""
        shapes: list[object] = [None if one is None else (one.shape, one.dtype) for one in inputs]
        if self._graph is None:
            self._seen = self._seen + 1 if shapes == self._shapes else 1
            self._shapes = shapes
            if self._seen <= self.warm_up:
                return self.function(*inputs)
            self._inputs = [None if one is None else one.clone() for one in inputs]
            self._graph = CudaGraph(lambda: self.function(*self._inputs))
        elif shapes != self._shapes:
            return self.function(*inputs)
        for own, given in zip(self._inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        self._graph.replay()
        return self._graph.result

    @property
    def recorded(self) -> bool:
        """Whether it was recorded."""
        return self._graph is not None

    def owns(self, result: T) -> bool:
        """Return whether a result is that of a replay."""
        return self._graph is not None and result is self._graph.result
