"""The recorder: it plays without learning and films the game in the emulator's colours."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import av
import numpy as np
import torch

from gelada.core.errors import GeladaError
from gelada.core.files import whole_file
from gelada.core.seeding import game_seeds, generator
from gelada.core.types import Bytes, Frames, Ints
from gelada.envs.api import GameSettings
from gelada.envs.frames import FrameStack
from gelada.envs.make import is_atari, is_gym, make_games
from gelada.envs.stuck_guard import StuckGuard
from gelada.evaluation.agent import Agent, Policy, as_agent

Show = Callable[[Bytes], None]
"""Takes a picture uint8[H, W, 3]."""

FRAME_RATE = 6
"""Frames per second of film for a game without an emulator, such as Catch."""

FRAME_ZOOM = 8
"""Pixels of a picture for each pixel of such a frame, before the film is scaled up."""

LEAST_SIDE = 240
"""Smaller pictures of an environment of Gymnasium are enlarged to this height at least."""


class Format(NamedTuple):
    """How a kind of film is written."""

    codec: str
    pixels: str
    rate: int  # pictures per second, at most
    zoom: tuple[int, int]  # times higher and wider; an Atari's pixels are wider than high
    options: dict[str, str]


FORMATS = {
    ".mp4": Format("libx264", "yuv420p", 30, (3, 4), {"crf": "20", "preset": "veryfast"}),
    ".gif": Format("gif", "pal8", 15, (2, 3), {}),
}


class Film(NamedTuple):
    """What was filmed."""

    path: Path
    score: float  # raw return so far, of all games together; the mean of several agents
    steps: int  # agent decisions
    seconds: float  # of film
    over: bool  # whether the (last) game was over at the end, or the film's time was
    games: int  # begun


def record(
    agent: Agent | str | Path,
    out: str | Path,
    seconds: float = 60.0,
    seed: int = 1,
    policy: Policy | None = None,
    progress: Callable[[float, float], None] | None = None,
    several: bool = False,
    stuck: int | None = None,
) -> Film:
    """Film one game from its start until it is over, at most ``seconds`` at the game's own speed.

    The file appears whole or not at all. Every second emulator frame is kept for .mp4, every
    fourth for .gif.

    Args:
        agent: that plays, with its training's settings; or the run or checkpoint to load it from.
        out: file to write; its suffix says which kind. An older one is replaced.
        seconds: of film, at most.
        seed: of the game and the sampled actions.
        policy: the agent's own by default.
        progress: called after every step with the seconds filmed and ``seconds``.
        several: begin another game whenever one is over, until ``seconds`` are filmed.
        stuck: limit of a `StuckGuard`, as in the protocol that the agent is scored by; None for
            no guard.

    Raises:
        GeladaError: if the suffix is another, ``seconds`` is not positive, ``out`` cannot be
            written, or the environment has no pictures.
    """
    agent, out = as_agent(agent), Path(out)
    form = FORMATS.get(out.suffix.lower())
    if form is None:
        raise GeladaError(
            f"film {out.name!r}: a film is an .mp4 or a .gif; name it {out.stem or 'film'}.mp4"
        )
    if not seconds > 0:
        raise GeladaError(f"film of {seconds:g} seconds: must be more than 0; 60 is usual")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one small picture at a time: more threads only wait for each other
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        screen = _make_screen(agent.games, int(game_seeds(seed, "film", 1)[0]))
        with (
            whole_file(out) as temporary,
            _Writer(temporary, out.suffix[1:].lower(), form, screen) as writer,
        ):
            player = _FilmPlayer(agent, screen, generator(seed, "film actions"), policy, stuck)
            games = 0
            while writer.seen < seconds * screen.rate and (several or not games):
                games += 1
                player.play(writer, seconds, progress)
        film = Film(out, player.score, player.steps, writer.seen / screen.rate, player.over, games)
    except (OSError, av.FFmpegError) as error:
        raise GeladaError(
            f"cannot write {out}: {error.strerror or error}; name another file or make room"
        ) from None
    finally:
        torch.set_num_threads(threads)
    return film


class _FilmPlayer:
    """Plays one game after another on a screen."""

    def __init__(
        self,
        agent: Agent,
        screen: _Screen,
        random: torch.Generator,
        policy: Policy | None,
        stuck: int | None,
    ) -> None:
        self._agent, self._screen, self._random, self._policy = agent, screen, random, policy
        self._guard = StuckGuard(stuck, screen.action_names, screen.agents) if stuck else None
        self.score, self.steps, self.over = 0.0, 0, False

    def play(
        self, writer: _Writer, seconds: float, progress: Callable[[float, float], None] | None
    ) -> None:
        """Play a game until it is over or ``seconds`` are filmed in all."""
        screen = self._screen
        first = screen.start(writer.show)
        count, height, width = first.shape
        observed = FrameStack(count, self._agent.stack, (height, width), first.dtype)
        observed.reset(first)
        state = self._agent.initial_state(count)
        self.over = False
        if self._guard:
            self._guard.begin(np.ones(count, dtype=np.bool_))
        while not self.over and writer.seen < seconds * screen.rate:
            actions, state = self._agent.act(
                observed.stacks, self._policy, self._random, state=state
            )
            if self._guard:
                actions = self._guard.let_through(actions)
            frames, reward, self.over = screen.step(actions, writer.show)
            observed.push(frames)
            self.score += reward
            self.steps += 1
            if progress:
                progress(min(writer.seen / screen.rate, seconds), seconds)


class _Screen(Protocol):
    """One game that shows its pictures."""

    rate: int  # pictures per second
    agents: int  # that play the game (B)
    zoom: tuple[int, int] | None  # times higher and wider in a film; None: as the format says
    action_names: tuple[str, ...]

    def start(self, show: Show) -> Frames:
        """Begin, show the first picture, return the first frames [B, H, W]."""

    def step(self, actions: Ints, show: Show) -> tuple[Frames, float, bool]:
        """Play a step with actions int64[B] and show its pictures.

        Return the frames, the mean raw reward of the agents, and whether the game is over.
        """


def _make_screen(settings: GameSettings, seed: int) -> _Screen:
    if is_gym(settings.game):
        return _GymScreen(settings, seed)
    return (_AtariScreen if is_atari(settings.game) else _FrameScreen)(settings, seed)


class _AtariScreen:
    """Shows every emulator frame."""

    rate, agents = 60, 1
    zoom: tuple[int, int] | None = None

    def __init__(self, settings: GameSettings, seed: int) -> None:
        from gelada.envs.ale import AleGame  # other games need no emulator

        self._game = AleGame(settings, seed)
        self.action_names = self._game.action_names

    def start(self, show: Show) -> Bytes:
        return self._game.reset(show)[None]

    def step(self, actions: Ints, show: Show) -> tuple[Bytes, float, bool]:
        step = self._game.step(int(actions[0]), show)
        return step.frame[None], step.reward, step.over


class _FrameScreen:
    """Shows the frames of the first agent; those after the last step belong to the next game."""

    rate = FRAME_RATE
    zoom: tuple[int, int] | None = None

    def __init__(self, settings: GameSettings, seed: int) -> None:
        self._games = make_games(settings, np.array([seed]))
        self.agents, self.action_names = self._games.count, self._games.action_names

    def start(self, show: Show) -> Bytes:
        frames = self._games.reset()
        show(_enlarge(frames[0]))
        return frames

    def step(self, actions: Ints, show: Show) -> tuple[Bytes, float, bool]:
        step = self._games.step(actions)
        over = bool(step.over[0])
        if not over:
            show(_enlarge(step.frames[0]))
        return step.frames, float(step.rewards.mean()), over


class _GymScreen:
    """Shows the pictures that an environment of Gymnasium draws of itself."""

    agents = 1

    def __init__(self, settings: GameSettings, seed: int) -> None:
        from gelada.envs.gym import GymGames

        self._games = GymGames(settings.game, np.array([seed]), pictures=True)
        self.action_names, self.rate = self._games.action_names, self._games.rate
        self.zoom: tuple[int, int] | None = None

    def start(self, show: Show) -> Frames:
        frames = self._games.reset()
        picture = self._games.picture()
        times = -(-LEAST_SIDE // len(picture))
        self.zoom = (times, times)
        show(picture)
        return frames

    def step(self, actions: Ints, show: Show) -> tuple[Frames, float, bool]:
        step = self._games.step(actions)
        over = bool(step.over[0])
        if not over:
            show(self._games.picture())
        return step.frames, float(step.rewards[0]), over


def _enlarge(frame: Bytes) -> Bytes:
    """Return a picture uint8[8 * H, 8 * W, 3] of a frame uint8[H, W]."""
    large = frame.repeat(FRAME_ZOOM, axis=0).repeat(FRAME_ZOOM, axis=1)
    return np.repeat(large[:, :, None], 3, axis=2)


class _Writer:
    """Encodes pictures as they come, leaving some out to keep the film's rate."""

    def __init__(self, path: Path, kind: str, form: Format, screen: _Screen) -> None:
        self.seen = 0  # pictures shown to it
        self._form, self._screen = form, screen
        self._every = max(screen.rate // form.rate, 1)
        self._rate = screen.rate // self._every
        # absolute and with a protocol: FFmpeg takes 12:30/film.mp4 and tcp://x for addresses
        self._container = av.open(f"file:{path.absolute()}", "w", format=kind)
        stream = self._container.add_stream(form.codec, rate=self._rate, options=form.options)
        assert isinstance(stream, av.VideoStream)
        self._stream = stream
        self._stream.pix_fmt = form.pixels
        self._colours = _Colours()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._container.mux(self._stream.encode())
        finally:
            self._container.close()

    def show(self, picture: Bytes) -> None:
        """Write a picture uint8[H, W, 3], or leave it out."""
        number, rest = divmod(self.seen, self._every)
        self.seen += 1
        if rest:
            return
        if self._form.pixels == "pal8":
            few = picture if self._screen.zoom is None else _rounded(picture)
            numbers, palette = self._colours.of(few)
            pair: Any = (self._zoom(numbers), palette)  # PyAV's types leave this form out
            frame = av.VideoFrame.from_ndarray(pair, format="pal8")
        else:
            frame = av.VideoFrame.from_ndarray(self._zoom(picture), format="rgb24")
        if number == 0:
            self._stream.width, self._stream.height = frame.width, frame.height
        frame.pts = number
        frame.time_base = Fraction(1, self._rate)
        self._container.mux(self._stream.encode(frame))

    def _zoom(self, picture: Bytes) -> Bytes:
        high, wide = self._screen.zoom or self._form.zoom
        large = picture.repeat(high, axis=0).repeat(wide, axis=1)
        rows, columns = (side - side % 2 for side in large.shape[:2])  # as the encoder wants
        return np.ascontiguousarray(large[:rows, :columns])


def _rounded(picture: Bytes) -> Bytes:
    """Return a picture with at most six values of red, green and blue each: 216 colours."""
    values: Ints = (picture.astype(np.int64) + 25) // 51 * 51
    return values.astype(np.uint8)


class _Colours:
    """The colours of a film, exactly: an Atari has 128, a GIF may have 256."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._palette: Bytes = np.full((256, 4), 255, dtype=np.uint8)  # alpha, red, green, blue

    def of(self, picture: Bytes) -> tuple[Bytes, Bytes]:
        """Return colour numbers uint8[H, W] and the palette uint8[256, 4] of a picture."""
        packed: Ints = picture.astype(np.int64) @ np.array([65536, 256, 1])
        colours, places = np.unique(packed, return_inverse=True)
        for colour in colours.tolist():
            if colour not in self._numbers:
                number = self._numbers[colour] = len(self._numbers)
                self._palette[number, 1:] = colour >> 16, colour >> 8 & 255, colour & 255
        numbers = np.array([self._numbers[colour] for colour in colours.tolist()], dtype=np.uint8)
        return numbers[places].reshape(picture.shape[:2]), self._palette
