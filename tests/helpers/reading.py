"""A device that holds no numbers, on which every read of the host is counted.

Tensors on torch's device ``meta`` have shapes and dtypes only. Operations refuse to mix them with
tensors of the CPU, as they do on a GPU. Reading one raises an error; here it is counted, and the
answer is ones. So whole roles run as on a GPU, wherever the tests run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

META, CPU = torch.device("meta"), torch.device("cpu")
ATEN = torch.ops.aten
MOVES = (ATEN._to_copy.default, ATEN.to.device, ATEN.to.dtype_layout)
"""What `torch.Tensor.to` and ``cpu`` become; in inference mode they stay as they are."""


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
        if func is ATEN._local_scalar_dense.default and source.device == META:
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
