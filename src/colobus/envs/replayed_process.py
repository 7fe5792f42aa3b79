"""Replayed games in a process of their own.

ale-py's single emulator, which replayed games need, holds Python's lock while it plays. In the
process of a training it would stop learners and other actors. So `ReplayProcess` starts a helper,
`python -m colobus.envs.replayed_process`, that plays in a `ReplayedGames`, and talks to it through
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
from safetensors.numpy import load, save

from colobus.core.arrays import Bytes, Ints, State, join, split
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings, Step


class ReplayProcess:
    """A vector of Atari games that a helper process plays; see `ReplayedGames`.

    Args:
        settings: how the games are played.
        state: that they go on from.

    Raises:
        ColobusError: if a game does not come out as it was, or the helper cannot be started.
    """

    def __init__(self, settings: GameSettings, state: State) -> None:
        module = "colobus.envs.replayed_process"
        self._helper = subprocess.Popen(
            [sys.executable, "-P", "-m", module],  # -P: no module of this folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the training, which saves first
        )
        self._end = weakref.finalize(self, _end, self._helper)
        about = self._ask("begin", state=state, settings=dataclasses.asdict(settings))
        if isinstance(about, str):
            raise ColobusError(about)
        self.count, self.actions = about["count"], about["actions"]
        height, width = about["frame_shape"]
        self.frame_shape, self.action_names = (height, width), tuple(about["action_names"])

    def reset(self) -> Bytes:
        """Start all games; return the first frames, uint8[B, H, W]."""
        frames: Bytes = self._ask("reset")
        return frames

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (see `Step`)."""
        return Step(**self._ask("step", actions=actions))

    def save(self) -> State:
        """Return what other games go on from."""
        state: State = self._ask("save")
        return state

    def _ask(self, call: str, **arguments: object) -> Any:
        """Let the helper call a method of its games; return what that returned."""
        try:
            _send(self._helper.stdin, {"call": call, "arguments": arguments})
            return _receive(self._helper.stdout)["found"]
        except (OSError, EOFError):
            raise RuntimeError("the process that plays the continued games is gone") from None


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


def _send(pipe: Any, message: State) -> None:
    """Write a message as two byte strings with their lengths before them: arrays, and the rest."""
    arrays, values = split(message, "message")
    for part in (save(arrays), json.dumps(values).encode()):
        pipe.write(len(part).to_bytes(8, "little") + part)
    pipe.flush()


def _receive(pipe: Any) -> State:
    """Read what `_send` wrote.

    Raises:
        EOFError: if the other side is gone.
    """
    parts = []
    for _ in range(2):
        size = int.from_bytes(pipe.read(8), "little")
        parts.append(pipe.read(size))
        if not size or len(parts[-1]) < size:
            raise EOFError
    found = {name: array.copy() for name, array in load(parts[0]).items()}  # else read-only
    return join(found, json.loads(parts[1]), "message")


def serve(asked: Any, answers: Any) -> None:
    """Play as the other side asks, until it closes its pipe (which raises EOFError)."""
    from colobus.envs.replayed import ReplayedGames

    begin = _receive(asked)["arguments"]
    try:
        games = ReplayedGames(GameSettings(**begin["settings"]), begin["state"])
    except Exception as error:  # whatever it is, the other side has to know
        said = str(error) if isinstance(error, ColobusError) else f"{type(error).__name__}: {error}"
        _send(answers, {"found": said})
        return
    about = ("count", "actions", "action_names", "frame_shape")
    _send(answers, {"found": {name: getattr(games, name) for name in about}})
    while True:
        message = _receive(asked)
        found = getattr(games, message["call"])(**message["arguments"])
        _send(answers, {"found": found._asdict() if isinstance(found, Step) else found})


def main() -> None:
    """Serve on the standard streams; what others print goes to the error stream."""
    cv2.setNumThreads(1)  # a helper has one processor, as an actor has one emulator thread
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):
        serve(sys.stdin.buffer, answers)
    os._exit(0)  # nothing is left to flush, and closing emulators takes time


if __name__ == "__main__":
    main()
