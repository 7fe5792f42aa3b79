"""Start states: points of earlier games from which an evaluation starts (protocol ``human``).

Nair et al. 2015 took points of human games and did not publish them. Here they are points of an
agent's games. For each start state a file holds the emulator's state `HISTORY` steps earlier and
the actions since then. Playing these actions again leads to the start state and shows every frame
of the first observation, whatever the preprocessing of the agent. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from colobus.core.errors import ColobusError, program
from colobus.core.fields import Range, read
from colobus.core.files import open_regular, write_whole
from colobus.core.seeding import game_seeds, generator, sequence
from colobus.core.types import Ints
from colobus.envs.ale import LAST_CODE, AleGame, frames_behind
from colobus.envs.api import GameSettings, rom_of
from colobus.envs.frames import FrameStack
from colobus.envs.make import is_atari
from colobus.evaluation.agent import Agent
from colobus.runtime.devices import torch_threads

HISTORY = 16
"""Steps that lead to a start state: as many as the deepest frame stack has frames."""

GAP = (30, 60)
"""Shortest and longest gap between two start states in seconds of play, drawn uniformly."""

LIMIT = 18_000
"""Most frames of a game that gives start states: five minutes."""

FRAMES_A_SECOND = 60

PERSON = "person"
"""What a file of start states says of the policy where a person has played."""


@dataclass(frozen=True)
class StartStates:
    """The start states of a file; see `StartState`."""

    states: tuple[bytes, ...]  # of `StartState`
    actions: Ints  # int64[N, HISTORY]
    frames: Ints  # int64[N], of the game before the start, no-ops included
    about: dict[str, Any]  # game, frame skip, emulator, and the agent that played
    file: str = ""  # name of the file, once there is one
    sha256: str = ""  # of the whole file

    @property
    def count(self) -> int:
        """Number of start states."""
        return len(self.states)

    def summary(self) -> dict[str, Any]:
        """Return what an evaluation reports about them, as JSON values."""
        return {"file": self.file, "sha256": self.sha256, "count": self.count, **self.about}


def summary_line(summary: dict[str, Any]) -> str:
    """Return `StartStates.summary` as a line to print."""
    maker = summary["made_by"]
    who = (
        f"{maker['run']} played it after {maker['steps']:,} steps ({maker['policy']} policy, seed "
        f"{maker['seed']}, ale-py {summary['ale_py']}), not of a human's games"
    )
    if maker["policy"] == PERSON:
        who = f"a person played it (ale-py {summary['ale_py']})"
    return (
        f"start states: {summary['file']} (sha256 {summary['sha256']}): {summary['count']} points "
        f"of {summary['game']} as {who}; frames before a start state count for the frame limit, "
        "rewards do not"
    )


StartState = tuple[bytes, list[int]]
"""The emulator's state `HISTORY` steps before a start, and the codes of actions played since."""


def make_starts(
    agent: Agent,
    run: str,
    count: int = 100,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> StartStates:
    """Play one game of an agent after another and keep start states of them.

    The sampling is Colobus's own, since the original is unknown: games begin after up to 30 no-ops
    (29 beside FIRE at reset), have no sticky actions and last five minutes at most; the agent
    plays by its own policy. Between two start states lie 30 to 60 seconds of play, across the ends
    of games. So all steps are about equally likely, except those of the first second of a game.

    Args:
        agent: the player.
        run: name of its run in the file.
        count: number of start states.
        seed: of the games, the actions and the gaps.
        progress: called after each start state with their number and ``count``.

    Raises:
        ColobusError: if the agent plays no Atari game.
    """
    check_kept(agent.games)
    settings = replace(agent.games, sticky=0.0, noop_max=31, max_frames=LIMIT, life_loss_ends=False)
    gaps = np.random.default_rng(sequence(seed, "gaps between starts"))
    found: list[StartState] = []
    with torch_threads(1):  # single stacks: more threads only wait for each other
        player = _StartStateSampler(agent, settings, seed)
        while len(found) < count:
            for _ in range(_gap(gaps, settings)):
                player.step()
            found.append(player.sample())
            if progress:
                progress(len(found), count)
    maker = {"run": run, "steps": agent.checkpoint.steps, "policy": agent.policy, "seed": seed}
    return _joined(found, settings, maker)


def _gap(random: np.random.Generator, settings: GameSettings) -> int:
    """Return the steps between two start states."""
    shortest, longest = (s * FRAMES_A_SECOND // settings.frame_skip for s in GAP)
    return int(random.integers(shortest, longest + 1))


def check_kept(settings: GameSettings) -> None:
    """Raise ColobusError if games with these settings have no start states."""
    if not is_atari(settings.game):
        raise ColobusError(f"start states are for Atari games and this run plays {settings.game}")


class StartKeeper:
    """Keeps start states of the games that a person plays, in a file that grows.

    As in `make_starts` 30 to 60 seconds of play lie before each. All steps that lead to a start
    state are the person's.

    Args:
        path: of the file, which must not be there yet.
        game: that is played, without sticky actions.
        settings: of the game.
        seed: of the gaps.
    """

    def __init__(self, path: Path, game: AleGame, settings: GameSettings, seed: int) -> None:
        check_new_file(path)
        self._path, self._game, self._settings = path, game, settings
        self._random = np.random.default_rng(sequence(seed, "gaps between starts"))
        self._maker = {"run": "colobus play --human", "steps": 0, "policy": PERSON, "seed": seed}
        self._state: bytes | None = None  # before a step of the person
        self._played: deque[tuple[bytes, int]] = deque(maxlen=HISTORY)  # states, codes of actions
        self._kept: list[StartState] = []
        self._left = _gap(self._random, settings)

    def before(self, person: bool) -> None:
        """Look at the game before a step of the person, or of the agent."""
        self._state = self._game.save() if person else None
        if not person:
            self._played.clear()

    def after(self, action: int, over: bool) -> None:
        """Take the code of the played action, and whether it ended the game."""
        if self._state is None or over:
            self._played.clear()
            return
        self._played.append((self._state, action))
        self._left -= 1
        if self._left > 0 or len(self._played) < HISTORY:
            return
        self._kept.append((self._played[0][0], [code for _, code in self._played]))
        write_starts(self._path, _joined(self._kept, self._settings, self._maker), again=True)
        self._left = _gap(self._random, self._settings)

    @property
    def count(self) -> int:
        """Number of start states so far."""
        return len(self._kept)


def _joined(
    found: Sequence[StartState], settings: GameSettings, maker: dict[str, Any]
) -> StartStates:
    """Return start states as a file has them."""
    since = HISTORY * settings.frame_skip
    return StartStates(
        tuple(state for state, _ in found),
        np.array([actions for _, actions in found], dtype=np.int64),
        np.array([frames_behind(state) + since for state, _ in found], dtype=np.int64),
        {**_emulator(settings), "made_by": maker},
    )


class _StartStateSampler:
    """Plays an agent's games, one after another, and takes start states of them."""

    def __init__(self, agent: Agent, settings: GameSettings, seed: int) -> None:
        self._agent = agent
        self._game = AleGame(settings, int(game_seeds(seed, "starts", 1)[0]))
        self._random = generator(seed, "actions before starts")
        self._begin()

    def _begin(self) -> None:
        """Begin the next game."""
        self._observed = FrameStack(self._agent.stack, self._game.reset()[None])
        self._state = self._agent.initial_state()

    def step(self) -> int | None:
        """Play one step; return the code of the played action, None if it ended the game."""
        chosen, self._state = self._agent.act(
            self._observed.stacks[0], None, self._random, state=self._state
        )
        step = self._game.step(int(chosen))
        if step.over:
            self._begin()
            return None
        self._observed.push(step.frame[None])
        return step.code

    def sample(self) -> StartState:
        """Play `HISTORY` steps of one game (the next one if it ends) and return where they lead."""
        while True:
            state = self._game.save()
            actions: list[int] = []
            while len(actions) < HISTORY and (played := self.step()) is not None:
                actions.append(played)
            if len(actions) == HISTORY:
                return state, actions


def check_new_file(path: Path) -> None:
    """Raise ColobusError if a file of start states exists: evaluations may refer to it."""
    if path.exists():
        raise ColobusError(f"{path}: the file exists; name a new file")


def write_starts(path: Path, starts: StartStates, again: bool = False) -> StartStates:
    """Write start states to a new file; return them with the name and checksum of the file.

    Raises:
        ColobusError: if the file exists, unless it may be written ``again``.
        OSError: if it cannot be written.
    """
    if not again:
        check_new_file(path)
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


def read_starts(path: Path, settings: GameSettings) -> StartStates:
    """Read the start states of a file, for games with these ``settings``.

    Raises:
        ColobusError: if the file is missing, damaged or no file of start states, belongs to
            another game, frame skip or emulator, or ``settings`` are of no Atari game.
    """
    check_kept(settings)
    try:
        with open_regular(path) as file:
            data = file.read()
        starts = _parse(data, settings)
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
    except ColobusError as error:
        why = str(error)
    except (SafetensorError, LookupError, ValueError, TypeError, AttributeError, MemoryError):
        why = "is no file of start states, or damaged"
    else:
        return replace(starts, file=path.name, sha256=hashlib.sha256(data).hexdigest())
    raise ColobusError(
        f"--starts {path}: {why}; make one for {settings.game} here with: {program()} starts RUN "
        "--out FILE"
    )


@dataclass(frozen=True)
class Maker:
    """Who played the games of start states."""

    run: str
    steps: Annotated[int, Range(0)]
    policy: str
    seed: Annotated[int, Range(0)]


def _parse(data: bytes, settings: GameSettings) -> StartStates:
    """Return the start states of a file's bytes, for games with these ``settings``.

    Raises:
        ColobusError: if its checksum differs, it belongs to another game or emulator, or a value
            is not what `write_starts` can have written.
        Exception: another one of what reads it, if it is no file of start states.
    """
    tensors = load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about = json.loads(header["__metadata__"]["about"])
    if about.pop("checksum") != _checksum(tensors, about):
        raise ColobusError("is damaged (checksum differs)")
    words = {"frame_skip": "frame skip", "ale_py": "ale-py", "rom": "ROM, sha256"}
    for name, own in _emulator(settings).items():
        theirs = about.get(name, 1 if name == "format" else None)
        if theirs != own:
            raise ColobusError(f"{words.get(name, name)} is {str(theirs)[:80]}, want {own}")
    read(Maker, about.get("made_by"), lambda name: f"made_by.{name}", "made_by")
    for name, dtype, dimensions in (
        ("states", np.uint8, 1),
        ("lengths", np.int64, 1),
        ("actions", np.int64, 2),
        ("frames", np.int64, 1),
    ):
        found = tensors.get(name)
        if found is None or found.dtype != dtype or found.ndim != dimensions:
            what = "missing" if found is None else f"{found.dtype}{list(found.shape)}"
            wanted = f"{np.dtype(dtype)} with {dimensions} dimension{'s' * (dimensions > 1)}"
            raise ColobusError(f"{name} is {what}, want {wanted}")
    states, lengths, actions = tensors["states"], tensors["lengths"], tensors["actions"]
    frames, count, size = tensors["frames"], len(lengths), len(states)
    if not count or lengths.min() < 1 or lengths.max() > size or lengths.sum() != size:
        raise ColobusError("lengths: must be those of the parts of states")
    known = (actions >= 0) & (actions <= LAST_CODE)
    if actions.shape != (count, HISTORY) or not known.all():
        raise ColobusError(f"actions: must be int64[{count}, {HISTORY}], codes of actions")
    if frames.shape != (count,) or frames.min() < 0 or frames.max() > 10**9:
        raise ColobusError(f"frames: must be int64[{count}], numbers of frames")
    parts = np.split(states, np.cumsum(lengths)[:-1])
    return StartStates(tuple(part.tobytes() for part in parts), actions, frames, about)


def _emulator(settings: GameSettings) -> dict[str, Any]:
    """Return all that an emulator state depends on, the frame skip, and the file's format."""
    return {
        "format": 1,
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
