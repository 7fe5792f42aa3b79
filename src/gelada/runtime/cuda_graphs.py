"""CUDA graphs: what a function queues on a GPU, recorded once and then queued by one call.

A small network is many short operations, and to queue each takes the host longer than the GPU
needs for it. A replay queues the same operations on the same memory: numbers of the host are those
of the recording, so whatever changes has to be a tensor on the device that is written before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from gelada.core.errors import GeladaError
from gelada.runtime.devices import CAPTURING

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
        GeladaError: if it does what cannot be recorded, such as reading a number from the GPU.
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
                raise GeladaError(
                    "a step of this run cannot be recorded as a CUDA graph: "
                    f"{str(error).strip().splitlines()[0]}; add --no-graphs"
                ) from error

    def replay(self) -> None:
        """Queue the operations on the stream of this thread; `result` gets new content."""
        self._graph.replay()


class Recorded(Generic[T]):
    """A function of tensors: called as it is at first, then recorded, and replayed from then on.

    It is recorded for the shapes that came so often in a row; with others it is called as before.
    What a replay returns is the same memory each time.

    Args:
        function: of tensors on the device, some of which may be None.
        warm_up: calls with the same shapes before it is recorded.
    """

    def __init__(self, function: Callable[..., T], warm_up: int = WARM_UP) -> None:
        self._function, self._warm_up, self._seen = function, warm_up, 0
        self._shapes: list[object] = []
        self._inputs: list[torch.Tensor | None] = []
        self._graph: CudaGraph[T] | None = None

    def __call__(self, *inputs: torch.Tensor | None) -> T:
        """Return what the function returns for ``inputs``."""
        shapes: list[object] = [None if one is None else (one.shape, one.dtype) for one in inputs]
        if self._graph is None:
            self._seen = self._seen + 1 if shapes == self._shapes else 1
            self._shapes = shapes
            if self._seen <= self._warm_up:
                return self._function(*inputs)
            self._inputs = [None if one is None else one.clone() for one in inputs]
            self._graph = CudaGraph(lambda: self._function(*self._inputs))
        elif shapes != self._shapes:
            return self._function(*inputs)
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
