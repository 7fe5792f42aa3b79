"""Random streams derived from (seed, role, index, round), so no random state has to be saved.

In ale-py's vector environment, integer seeds s and s + 1 share all games but one.
`numpy.random.SeedSequence` mixes the numbers, so every role has a stream of its own.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch

from colobus.core.types import Ints


def sequence(seed: int, role: str, *numbers: int) -> np.random.SeedSequence:
    """Return the seed sequence for a role's name and further numbers."""
    return np.random.SeedSequence((seed, zlib.crc32(role.encode()), *numbers))


def generator(seed: int, role: str, *numbers: int) -> torch.Generator:
    """Return a torch generator for a role's name and numbers, as (index, incarnation, round)."""
    state = int(sequence(seed, role, *numbers).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


def game_seeds(seed: int, role: str, count: int, *numbers: int) -> Ints:
    """Return int64[count] seeds in 1 … 2**31 - 2: ale-py takes 32-bit seeds and ignores 0."""
    words = sequence(seed, role, *numbers).generate_state(count, np.uint32)
    return (1 + words.astype(np.int64) % (2**31 - 2)).astype(np.int64)
