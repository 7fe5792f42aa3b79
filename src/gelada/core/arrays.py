"""Arrays of numpy by their numbers, and saved states. Nothing of torch is imported here.

A process that only plays games (`gelada.envs.replayed_process`) begins sooner without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Frames = NDArray[Any]
"""Frames of games: uint8 […, H, W], or uint8 or float32 […, 1, D] of vectors."""

State = dict[str, Any]
"""The saved state of an object: arrays or tensors by name, and JSON values."""
