"""Continued games in a process of their own.

ale-py's single emulator, which continued games need, holds Python's lock while it plays. In the
process of a training it would stop learners and other actors. So `ReplayProcess` starts a helper,
`python -m gelada.envs.replayed_process`, that plays in a `ReplayedGames`, and talks to it through
pipes. The helper ends when its pipe is closed, also if the training was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import weakref
from typing import Any

import cv2
import numpy as np
from safetensors.numpy import load, save

from gelada.core.arrays import Bools, Bytes, Floats, Ints, State
from gelada.core.errors import GeladaError
from gelada.core.nested import join, split_arrays
from gelada.envs.api import GameSettings, Step

STEP, RESET, SAVE = b"s", b"r", b"v"
"""What the helper is asked to do."""

FLAGS = ("terminated", "truncated", "over", "forced")
"""Fields of a step that are one byte for each game."""


class ReplayProcess:
    """A vector of Atari games that a helper process plays; see `ReplayedGames`.

    Args:
        settings: how the games are played.
        state: that they go on from.

    Raises:
        GeladaError: if a game does not come out as it was, or the helper cannot be started.
    """

    def __init__(self, settings: GameSettings, state: State) -> None:
        self._helper = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "gelada.envs.replayed_process",
            ],  # no module of this folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the training, which saves first
        )
        self._end = weakref.finalize(self, _end, self._helper)
        self._ask(_packed({"state": state, "settings": dataclasses.asdict(settings)}))
        about = self._state()
        if "error" in about:
            raise GeladaError(about["error"])
        self.count, self.actions = int(about["count"]), int(about["actions"])
        self.action_names: tuple[str, ...] = tuple(about["action_names"])
        height, width = about["frame_shape"]
        self.frame_shape: tuple[int, int] = (height, width)

    def reset(self) -> Bytes:
        """Start all games; return the first frames, uint8[B, H, W]."""
        self._ask(RESET)
        return self._frames()

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (see `Step`)."""
        self._ask(STEP + actions.astype(np.int64).tobytes())
        frames = self._frames()
        rewards: Floats = np.frombuffer(self._read(4 * self.count), dtype=np.float32).copy()
        flags: list[Bools] = [
            np.frombuffer(self._read(self.count), dtype=np.bool_).copy() for _ in FLAGS
        ]
        return Step(frames, rewards, *flags)

    def save(self) -> State:
        """Return what other games go on from."""
        self._ask(SAVE)
        return self._state()

    def _frames(self) -> Bytes:
        height, width = self.frame_shape
        data = self._read(self.count * height * width)
        return np.frombuffer(data, dtype=np.uint8).reshape(self.count, height, width).copy()

    def _ask(self, words: bytes) -> None:
        pipe = self._helper.stdin
        assert pipe is not None
        try:
            pipe.write(words)
            pipe.flush()
        except OSError:
            raise RuntimeError("the process that plays the continued games is gone") from None

    def _state(self) -> State:
        return _unpacked(self._helper.stdout)

    def _read(self, size: int) -> bytes:
        pipe = self._helper.stdout
        assert pipe is not None
        return _exactly(pipe, size)


def _end(helper: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a helper and wait for its end."""
    for pipe in (helper.stdin, helper.stdout):
        with contextlib.suppress(OSError):
            assert pipe is not None
            pipe.close()
    try:
        helper.wait(5.0)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()


def _packed(state: State) -> bytes:
    """Return a state as two byte strings with their lengths before them: arrays, and the rest."""
    arrays, values = split_arrays(state, "state")
    parts = (save(arrays), json.dumps(values).encode())
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _unpacked(pipe: Any) -> State:
    """Read what `_packed` returned."""
    arrays, values = (_exactly(pipe, int.from_bytes(_exactly(pipe, 8), "little")) for _ in range(2))
    found = {name: array.copy() for name, array in load(arrays).items()}  # else read-only
    return join(found, json.loads(values), "state")


def _exactly(pipe: Any, size: int) -> bytes:
    data: bytes = pipe.read(size)
    if len(data) < size:
        raise RuntimeError("the process that plays the continued games is gone")
    return data


def serve(asked: Any, answers: Any) -> None:
    """Play as the other side asks, until it closes its pipe."""
    from gelada.envs.replayed import ReplayedGames

    first = _unpacked(asked)
    try:
        games = ReplayedGames(GameSettings(**first["settings"]), first["state"])
    except Exception as error:  # whatever it is, the other side has to know
        said = str(error) if isinstance(error, GeladaError) else f"{type(error).__name__}: {error}"
        answers.write(_packed({"error": said}))
        answers.flush()
        return
    about = {"count": games.count, "actions": games.actions, "frame_shape": games.frame_shape}
    answers.write(_packed(about | {"action_names": games.action_names}))
    answers.flush()
    while what := asked.read(1):
        if what == STEP:
            actions = np.frombuffer(_exactly(asked, 8 * games.count), dtype=np.int64)
            step = games.step(actions)
            parts = [step.frames, step.rewards, *(getattr(step, name) for name in FLAGS)]
            answers.write(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
        elif what == RESET:
            answers.write(np.ascontiguousarray(games.reset()).tobytes())
        else:
            answers.write(_packed(games.save()))
        answers.flush()


def main() -> None:
    """Serve on the standard streams; what others print goes to the error stream."""
    cv2.setNumThreads(1)  # a helper has one processor, as an actor has one emulator thread
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(BrokenPipeError, RuntimeError):
        serve(sys.stdin.buffer, answers)
    os._exit(0)  # nothing is left to flush, and closing emulators takes time


if __name__ == "__main__":
    main()
