"""The flat parameter vector that holds a network's parameters.

The parameters of a module become views of one vector and their gradients views of a second, so an
optimizer step, a snapshot, a slice for a server and a clipped norm are each one operation on one
contiguous array.

Move and convert the module before flattening it. ``.to()``, ``.half()``,
``load_state_dict(assign=True)`` and ``zero_grad()`` (which drops gradients) detach the views
without an error, so the learner calls `FlatParameters.check` after every round. A vector has one
writer; all other roles read published snapshots.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from colobus.core.errors import ColobusError

T = TypeVar("T")

ALIGN = 64
"""The vector is padded to, and cut at, multiples of this many elements. Kernels round the
remainder of a vector register differently, so results of other cuts differ in the last bit."""


class Entry(NamedTuple):
    """The position of one parameter in the vector, in elements."""

    name: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Layout:
    """Names, offsets and strides of a module's parameters in the flat vector.

    Strides are kept, so a channels-last weight stays channels-last as a view.
    """

    def __init__(self, module: nn.Module) -> None:
        self.entries: list[Entry] = []
        offset = 0
        for name, parameter in module.named_parameters():
            dense = torch.empty_like(parameter)  # the strides are the same if it is dense itself
            if dense.stride() != parameter.stride():
                raise ValueError(f"parameter {name!r} has gaps or overlaps in memory")
            self.entries.append(Entry(name, offset, tuple(parameter.shape), parameter.stride()))
            offset += parameter.numel()
        self.count = offset
        self.size = -(-offset // ALIGN) * ALIGN  # padded

    def views(
        self, vector: torch.Tensor, only: Container[str] | None = None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each parameter's name and its view of ``vector`` [size].

        With ``only`` those parameters alone; then the vector may end after the last of them.
        """
        base = vector.storage_offset()
        for name, offset, shape, strides in self.entries:
            if only is None or name in only:
                yield name, vector.as_strided(shape, strides, base + offset)

    def owners(self, parts: Sequence[T], names: Container[str]) -> Sequence[T]:
        """Return those of the first ``parts``, one for each slice, that hold these parameters.

        All parts up to the last that is needed are returned, so that their slices, joined, begin
        where the vector begins.
        """
        end = max(e.offset + math.prod(e.shape) for e in self.entries if e.name in names)
        return [
            part for part, cut in zip(parts, self.cut(len(parts)), strict=True) if cut.start < end
        ]

    def named(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return contiguous copies by name, as a checkpoint stores them."""
        return {name: view.contiguous().clone() for name, view in self.views(vector)}

    def fill(self, vector: torch.Tensor, named: dict[str, torch.Tensor]) -> None:
        """Write tensors by name into ``vector``: the inverse of `named`.

        Raises:
            ValueError: if a name is missing or a shape differs.
        """
        for name, view in self.views(vector):
            if name not in named or named[name].shape != view.shape:
                found = tuple(named[name].shape) if name in named else "nothing"
                raise ValueError(f"parameter {name!r}: want {tuple(view.shape)}, found {found}")
            view.copy_(named[name])

    def scales(self, scale: Callable[[str], float]) -> torch.Tensor | None:
        """Return a number for each parameter's name as a vector [size]; None if all are 1."""
        vector = torch.ones(self.size)
        for name, view in self.views(vector):
            view.fill_(scale(name))
        return None if bool(vector.eq(1.0).all()) else vector

    def cut(self, parts: int) -> list[slice]:
        """Return ``parts`` slices that cover the vector; their lengths differ by at most `ALIGN`.

        Raises:
            ColobusError: if there are fewer blocks of `ALIGN` elements than parts.
        """
        blocks = self.size // ALIGN
        if not 1 <= parts <= blocks:
            raise ColobusError(
                f"--servers {parts}: the network has only {self.count:,} parameters, enough for "
                f"{blocks}; use fewer servers or a larger --width"
            )
        edges = [ALIGN * (blocks * i // parts) for i in range(parts + 1)]
        return [slice(a, b) for a, b in itertools.pairwise(edges)]


class Clipped(NamedTuple):
    """What was done to gradients that are too large; scalars on their device."""

    norm: torch.Tensor  # global, before
    share: torch.Tensor  # of the gradients that were scaled down, 0 to 1


class FlatParameters:
    """Makes a module's parameters views of ``values`` and its gradients views of ``gradients``.

    Args:
        module: already on its device and in its memory format, in float32.

    Raises:
        ValueError: if a parameter is not float32.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layout = Layout(module)
        first = next(module.parameters())
        self.values = torch.zeros(self.layout.size, dtype=torch.float32, device=first.device)
        self.gradients = torch.zeros_like(self.values)
        parameters = dict(module.named_parameters())
        for (name, view), (_, gradient) in zip(
            self.layout.views(self.values), self.layout.views(self.gradients), strict=True
        ):
            parameter = parameters[name]
            if parameter.dtype != torch.float32:
                raise ValueError(f"parameter {name!r} is {parameter.dtype}: convert after reading")
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = gradient

    def zero_gradients(self) -> None:
        """Set all gradients to 0 in place, because ``zero_grad()`` would drop the views."""
        self.gradients.zero_()

    def clip(self, limit: float) -> Clipped:
        """Scale the gradients to a global norm of at most ``limit``."""
        norm: torch.Tensor = torch.linalg.vector_norm(self.gradients)
        scale = (limit / (norm + 1e-6)).clamp(max=1.0)
        # reading a number from a GPU would wait for it
        if norm.device.type != "cpu" or scale < 1.0:
            self.gradients.mul_(scale)
        return Clipped(norm, (scale < 1.0).float())

    def clip_tensors(self, limit: float) -> Clipped:
        """Scale each parameter's gradient to a norm of at most ``limit`` times its elements.

        It is ``clip_by_average_norm`` of TensorFlow 1.
        """
        norm: torch.Tensor = torch.linalg.vector_norm(self.gradients)
        scales = []
        for _, view in self.layout.views(self.gradients):
            quotient = limit * view.numel() / torch.linalg.vector_norm(view)
            scales.append(quotient.clamp(max=1.0))  # the quotient is infinite for a gradient of 0
            view.mul_(scales[-1])
        return Clipped(norm, (torch.stack(scales) < 1.0).float().mean())

    def check(self) -> None:
        """Raise AssertionError if any parameter or gradient is no longer a view."""
        parameters = dict(self.module.named_parameters())
        assert len(parameters) == len(self.layout.entries), "parameters were added or removed"
        for kind, vector in (("parameter", self.values), ("gradient", self.gradients)):
            for name, view in self.layout.views(vector):
                tensor = parameters[name] if kind == "parameter" else parameters[name].grad
                same = (
                    tensor is not None
                    and tensor.data_ptr() == view.data_ptr()
                    and tensor.stride() == view.stride()
                    and tensor.dtype == view.dtype
                )
                assert same, f"the {kind} {name!r} is no longer a view of the flat vector"


def in_host_memory(vector: torch.Tensor) -> torch.Tensor:
    """Return a vector that the host can read: itself, or a copy of what is on a device.

    The copy from a GPU is pinned, so that it needs no second one on the way.
    """
    if vector.device.type == "cpu":
        return vector
    pinned = vector.device.type == "cuda"
    return torch.empty(vector.shape, dtype=vector.dtype, pin_memory=pinned).copy_(vector)
