"""Start states: moments of games that an evaluation begins at (protocol ``human``).

Nair et al. 2015 began games at moments of human games, which were never published. Here they are
moments of an agent's games. A file holds, for each, the emulator's state `HISTORY` steps earlier
and the actions since: played again, they give the moment and every picture of an agent's first
stack, whatever its preprocessing. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gelada.core.errors import GeladaError
from gelada.core.files import write_whole
from gelada.core.seeding import game_seeds, generator, sequence
from gelada.core.types import Ints
from gelada.envs.ale import FIRE, AleGame, frames_behind, rom_of
from gelada.envs.api import GameSettings
from gelada.evaluation.agent import Agent

HISTORY = 16
"""Steps that are played again to reach a start: as many as the deepest stack has frames."""

GAP = (30, 60)
"""Seconds of play from one start to the next: the number of steps between is drawn uniformly."""

LIMIT = 18_000
"""Frames of a game that starts are taken from: five minutes."""

FRAMES_A_SECOND = 60


@dataclass(frozen=True)
class Starts:
    """The start states of a file."""

    states: tuple[bytes, ...]  # of the emulator, HISTORY steps before each start
    actions: Ints  # int64[N, HISTORY]: codes of `ale_py.Action`, played since
    frames: Ints  # int64[N]: of the game before the start, no-ops included
    about: dict[str, Any]  # game, frame skip, emulator, and whose games they are
    file: str = ""  # its name, once there is a file
    sha256: str = ""  # of the whole file

    @property
    def count(self) -> int:
        """Number of starts."""
        return len(self.states)

    def name(self) -> dict[str, Any]:
        """Return what an evaluation says about them, as JSON values."""
        return {"file": self.file, "sha256": self.sha256, "count": self.count, **self.about}


def in_words(name: dict[str, Any]) -> str:
    """Return in a line what `Starts.name` says."""
    maker = name["made_by"]
    return (
        f"starts: {name['file']} (sha256 {name['sha256']}): {name['count']} moments of "
        f"{name['game']} as {maker['run']} played it after {maker['steps']:,} steps "
        f"({maker['policy']} policy, seed {maker['seed']}, ale-py {name['ale_py']}), no human's; "
        "the frames before a start count for the limit, rewards only after it"
    )


class Moment(NamedTuple):
    """One start."""

    state: bytes
    actions: list[int]
    frames: int


def make_starts(
    agent: Agent,
    run: str,
    count: int = 100,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Starts:
    """Play an agent's games one after another and keep moments of them.

    Chosen, as the original's are unknown: games begin after up to 30 no-ops, have no sticky
    actions and last five minutes at most; the agent's own policy plays. From one start to the
    next 30 to 60 seconds are played, ends of games or not, so all steps but those of a game's
    first second are about equally likely.

    Args:
        agent: that plays.
        run: what its run is called in the file.
        count: starts to keep.
        seed: of the games, the actions and the gaps.
        progress: called after every start with their number and ``count``.

    Raises:
        GeladaError: if the agent plays Catch.
    """
    if agent.games.game == "catch":
        raise GeladaError("start states are for Atari games and this run plays catch")
    settings = replace(agent.games, sticky=0.0, noop_max=31, max_frames=LIMIT, life_loss_ends=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # single stacks: more threads only wait for each other
    try:
        moments = _keep_moments(_Player(agent, settings, seed), settings, count, seed, progress)
    finally:
        torch.set_num_threads(before)
    maker = {"run": run, "steps": agent.checkpoint.steps, "policy": agent.policy, "seed": seed}
    return Starts(
        tuple(moment.state for moment in moments),
        np.array([moment.actions for moment in moments], dtype=np.int64),
        np.array([moment.frames for moment in moments], dtype=np.int64),
        {"format": 1, **_emulator(settings), "made_by": maker},
    )


def _keep_moments(
    player: _Player,
    settings: GameSettings,
    count: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> list[Moment]:
    """Play on and on; return a moment after every gap."""
    shortest, longest = (s * FRAMES_A_SECOND // settings.frame_skip for s in GAP)
    gaps = np.random.default_rng(sequence(seed, "gaps between starts"))
    moments: list[Moment] = []
    while len(moments) < count:
        for _ in range(int(gaps.integers(shortest, longest + 1))):
            player.step()
        moments.append(player.moment())
        if progress:
            progress(len(moments), count)
    return moments


class _Player:
    """An agent at a game that begins anew whenever it is over."""

    def __init__(self, agent: Agent, settings: GameSettings, seed: int) -> None:
        self._agent, self._skip = agent, settings.frame_skip
        self._game = AleGame(settings, int(game_seeds(seed, "starts", 1)[0]))
        self._random = generator(seed, "actions before starts")
        self._stack = np.zeros((agent.stack, *self._game.frame_shape), dtype=np.uint8)
        self._begin()

    def step(self) -> int | None:
        """Play one step; return the code of what was played, None if the game is over with it."""
        action = int(self._agent.act(self._stack, None, self._random))
        step = self._game.step(action)
        if step.over:
            self._begin()
            return None
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = step.frame
        return FIRE if step.forced else int(self._game.codes[action])

    def moment(self) -> Moment:
        """Play `HISTORY` steps of one game (of the next, where it ends); return where they led."""
        while True:
            state = self._game.save()
            actions: list[int] = []
            while len(actions) < HISTORY and (played := self.step()) is not None:
                actions.append(played)
            if len(actions) == HISTORY:
                before = frames_behind(state)
                return Moment(state, actions, before + HISTORY * self._skip)

    def _begin(self) -> None:
        self._stack[:] = 0
        self._stack[-1] = self._game.reset()


def write_starts(path: Path, starts: Starts) -> Starts:
    """Write starts into a new file; return them with the file's name and checksum.

    Raises:
        GeladaError: if there is such a file: evaluations refer to it.
        OSError: if it cannot be written.
    """
    if path.exists():
        raise GeladaError(f"--out {path}: is there already; name a new file")
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "states": np.frombuffer(b"".join(starts.states), dtype=np.uint8),
        "lengths": np.array([len(state) for state in starts.states], dtype=np.int64),
        "actions": starts.actions,
        "frames": starts.frames,
    }
    about = starts.about | {"checksum": _checksum(tensors, starts.about)}
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save(tensors, metadata={"about": json.dumps(about)})
    write_whole(path, data)
    return replace(starts, file=path.name, sha256=hashlib.sha256(data).hexdigest())


def read_starts(path: Path, settings: GameSettings) -> Starts:
    """Read the starts of a file, for games played under ``settings``.

    Raises:
        GeladaError: if the file is missing, damaged or no file of starts, or of another game,
            frame skip or emulator.
    """
    again = "make one with: gelada starts RUN --out FILE"
    try:
        data = path.read_bytes()
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about = json.loads(header["__metadata__"]["about"])
        checksum = about.pop("checksum")
        if checksum != _checksum(tensors, about):
            raise GeladaError(f"--starts {path}: is damaged (checksum differs); {again}")
        ends = np.cumsum(tensors["lengths"])
        states = tuple(part.tobytes() for part in np.split(tensors["states"], ends[:-1]))
        starts = Starts(
            states,
            tensors["actions"],
            tensors["frames"],
            about,
            path.name,
            hashlib.sha256(data).hexdigest(),
        )
    except OSError as error:
        why = error.strerror or error
        raise GeladaError(f"--starts {path}: cannot be read: {why}; {again}") from None
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError):
        raise GeladaError(
            f"--starts {path}: is no file of start states, or damaged; {again}"
        ) from None
    _check(path, about, settings)
    return starts


def _check(path: Path, about: dict[str, Any], settings: GameSettings) -> None:
    """Raise GeladaError if starts are not of these games on this emulator."""
    theirs = {"format": 1, "frame_skip": "?"} | about
    own = {"format": 1, **_emulator(settings)}
    for name, what in (
        ("format", "format"),
        ("game", "game"),
        ("frame_skip", "frame skip"),
        ("ale_py", "ale-py"),
        ("rom", "ROM, sha256"),
    ):
        if theirs.get(name) != own[name]:
            raise GeladaError(
                f"--starts {path}: {what} is {theirs.get(name)}, want {own[name]}; make a file "
                f"for {settings.game} here with: gelada starts RUN --out FILE"
            )


def _emulator(settings: GameSettings) -> dict[str, Any]:
    """Return what a state depends on, and how games are cut into steps."""
    return {
        "game": settings.game,
        "frame_skip": settings.frame_skip,
        "ale_py": metadata.version("ale-py"),
        "rom": hashlib.sha256(rom_of(settings.game).read_bytes()).hexdigest(),
    }


def _checksum(tensors: dict[str, np.ndarray[Any, Any]], about: dict[str, Any]) -> str:
    """Return the sha256 of everything in a file."""
    whole = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        whole.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        whole.update(tensors[name].tobytes())
    return whole.hexdigest()
