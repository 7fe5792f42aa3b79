"""Setting the random numbers of an emulator to where those of another one stand.

ale-py 0.12 has two Mersenne Twisters for each game. The environment's is seeded with the game's
seed, and every frame draws two numbers of it, for sticky actions. The console's has a fixed seed,
and every reset draws the noise of the memory and the timer. A serialised state holds both as text:
624 words and a position (C++'s ``operator<<``), so they can be moved on without playing.
"""

from __future__ import annotations

import numpy as np
from ale_py import ALEInterface, ALEState

DRAWS_PER_FRAME = 2
"""Numbers that a frame draws: for the first and for the second player."""

MOST = 100_000
"""Numbers that one reset may draw. The largest memory of a cartridge has some thousand bytes."""

HEAD = 24
"""Bytes before the emulator's part of a state: six integers, of which the third counts frames."""


def wind(ale: ALEInterface, resets: int, frames: int) -> None:
    """Move the random numbers of a freshly loaded game on.

    Args:
        ale: with a seeded and loaded game that was not played yet.
        resets: how often the game is to have been reset since it was loaded.
        frames: how many frames are to have been played.
    """
    if not (resets or frames):
        return
    fresh = _Parts(ale.cloneState(include_rng=True).serialize())
    console = fresh.console
    if resets:
        ale.reset_game()
        after = _Parts(ale.cloneState(include_rng=True).serialize())
        console = moved(console, resets * distance(console, after.console))
    environment = moved(fresh.environment, DRAWS_PER_FRAME * frames)
    ale.restoreState(ALEState(fresh.replaced(frames, console, environment)))


def moved(text: bytes, draws: int) -> bytes:
    """Return a Mersenne Twister's text after so many numbers more."""
    twister = _twister(text)
    twister.random_raw(draws, output=False)
    return _text(twister)


def distance(before: bytes, after: bytes) -> int:
    """Return how many numbers lie between two states of one Mersenne Twister.

    Raises:
        ValueError: if the second does not follow within `MOST` numbers.
    """
    twister = _twister(before)
    for draws in range(MOST):
        if _text(twister) == after:
            return draws
        twister.random_raw(1, output=False)
    raise ValueError("a reset of the game drew an unknown number of random numbers")


class _Parts:
    """A serialised state with random numbers, cut at the two generators.

    It is six integers, a string (the emulator's part), and two integers; the emulator's part
    begins with the strings of the cartridge and of the system, an integer, and the console's
    generator, and ends with the environment's. An integer has four bytes, the lowest first; a
    string has its length before it.
    """

    def __init__(self, state: bytes) -> None:
        size = _integer(state, HEAD)
        inner = state[HEAD + 4 : HEAD + 4 + size]
        self._head, self._tail = state[:HEAD], state[HEAD + 4 + size :]
        begin = 4 + _integer(inner, 0)  # the cartridge
        begin += 4 + _integer(inner, begin) + 4  # the system, and its cycles
        end = begin + 4 + _integer(inner, begin)
        last = len(inner)
        while inner[last - 1] in b"0123456789 ":
            last -= 1
        self.console, self.environment = inner[begin + 4 : end], inner[last:]
        self._first, self._middle = inner[:begin], inner[end : last - 4]

    def replaced(self, frames: int, console: bytes, environment: bytes) -> bytes:
        """Return the state with another number of frames and other generators."""
        inner = self._first + _string(console) + self._middle + _string(environment)
        head = self._head[:8] + _bytes(frames) + self._head[12:]
        return head + _string(inner) + self._tail


def _twister(text: bytes) -> np.random.MT19937:
    *words, position = map(int, text.split())
    twister = np.random.MT19937()
    key = np.array(words, dtype=np.uint32)
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
    return twister


def _text(twister: np.random.MT19937) -> bytes:
    state = twister.state["state"]
    return " ".join(map(str, [*state["key"].tolist(), int(state["pos"])])).encode()


def _integer(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _string(data: bytes) -> bytes:
    return _bytes(len(data)) + data
