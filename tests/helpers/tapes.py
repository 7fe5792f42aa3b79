"""Stand-ins for CUDA graphs, which record and replay wherever the tests run, and for a device.

Like a CUDA graph a `Tape` replays the same operations on the same memory, with the numbers of the
host that they were recorded with. On torch's device ``meta`` an `OnDevice` graph computes nothing,
and refuses whatever needs the host.

Tensors on ``meta`` have shapes and dtypes only. Operations refuse to mix them with tensors of the
CPU, as they do on a GPU. Reading one raises an error; `Reads` counts it, and the answer is ones. So
whole roles run as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from colobus.nets import observations
from colobus.ops import returns
from colobus.ops.flat import Clipped, FlatParameters
from colobus.runtime import devices as cuda_graphs

T = TypeVar("T")
META, CPU = torch.device("meta"), torch.device("cpu")
ATEN = torch.ops.aten
READ = ATEN._local_scalar_dense.default
MOVES = (ATEN._to_copy.default, ATEN.to.device, ATEN.to.dtype_layout)
"""What `torch.Tensor.to` and ``cpu`` become; in inference mode they stay as they are."""


class Operations(TorchDispatchMode):
    """Takes down operations: function, arguments, and what it returned."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch stub
        self.all: list[tuple[Any, Any, Any, Any]] = []
        self.written: list[tuple[torch.Tensor, torch.Tensor]] = []  # with what was there before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.is_mutable:
            values = tensors((args, kwargs))
            self.written += [(one, one.clone()) for one in values]
        result = func(*args, **(kwargs or {}))
        self.all.append((func, args, kwargs or {}, result))
        return result


class Counted(Generic[T]):
    """What both graphs count."""

    made: ClassVar[list[Any]]
    result: T

    def __init__(self) -> None:
        self.replays = 0
        self.made.append(self)

    def replay(self) -> None:
        self.replays += 1


class Tape(Counted[T]):
    """Replays operations of a CPU."""

    made: ClassVar[list[Any]] = []  # emptied by `taped`

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        operations = Operations()
        with operations:
            self.result = work()
        self.operations = operations.all
        with torch.no_grad():
            for tensor, before in reversed(operations.written):  # a recording computes nothing
                tensor.copy_(before)

    def replay(self) -> None:
        super().replay()
        with torch.no_grad():
            for func, args, kwargs, before in self.operations:
                now = func(*args, **kwargs)
                if func._schema.is_mutable:
                    continue
                for old, new in zip(tensors(before), tensors(now), strict=True):
                    if old.data_ptr() != new.data_ptr():  # else it is a view
                        old.copy_(new)


class OnDevice(Counted[T]):
    """Refuses operations that a recording on a GPU would not be of."""

    made: ClassVar[list[Any]] = []  # emptied by `on_device`

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        with Strict():  # type: ignore[no-untyped-call]  # torch stub
            self.result = work()


class Strict(TorchDispatchMode):
    """Raises AssertionError for what reads from the device, or mixes the CPU in."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        assert func is not READ, "a number is read"
        result = func(*args, **(kwargs or {}))
        for tensor in tensors((args, kwargs, result)):
            assert tensor.device.type == "meta", f"{func} has to do with the CPU"
        return result


def tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Record tapes, and compute on the CPU in the forms that a GPU has; return all tapes."""
    monkeypatch.setattr(cuda_graphs, "CudaGraph", Tape)
    monkeypatch.setattr(observations, "blank", observations.blank_by_age)
    monkeypatch.setattr(returns, "_sums", returns.backward_sums)
    monkeypatch.setattr(FlatParameters, "clip", clip)
    monkeypatch.setattr(torch.Tensor, "cpu", torch.Tensor.clone)  # a copy, as from a GPU
    Tape.made.clear()
    yield Tape.made
    Tape.made.clear()


def clip(flat: FlatParameters, limit: float) -> Clipped:
    """Clip as on a GPU, without a look at the norm."""
    norm: torch.Tensor = torch.linalg.vector_norm(flat.gradients)
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    flat.gradients.mul_(scale)
    return Clipped(norm, (scale < 1.0).float())


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Record strictly; return all graphs."""
    monkeypatch.setattr(cuda_graphs, "CudaGraph", OnDevice)
    OnDevice.made.clear()
    yield OnDevice.made
    OnDevice.made.clear()


class Reads(TorchDispatchMode):
    """Counts what the host reads of tensors on ``meta``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch stub
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        source: Any = args[0] if args else None
        if func is READ and source.device == META:
            self.count += 1
            return 1.0 if source.is_floating_point() else 1
        to_host = kwargs.get("device") == CPU or CPU in args[1:2]
        if func in MOVES and source.device == META and to_host:
            self.count += 1
            return torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        if func is ATEN.copy_.default and source.device == CPU and args[1].device == META:
            self.count += 1
            return source.fill_(1)
        return func(*args, **kwargs)
