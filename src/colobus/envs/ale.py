"""One Atari game on the emulator's own interface: for films, start states and replayed games.

Its frames equal those of `colobus.envs.atari.AtariGames` pixel for pixel. It also gives access to
the colour screen and the state of the emulator. The preprocessing is that of ale-py's vector
environment 0.12.1: FIRE at reset (a setting, in games that have the action), then no-ops; the
maximum of the last two frames of a step, grey or colour; `INTER_AREA` resize; raw rewards.

The random numbers of a game can be set to where those of another one stand. ale-py 0.12 has two
Mersenne Twisters for each game. The environment's is seeded with the game's seed, and every frame
draws two numbers of it, for sticky actions. The console's has a fixed seed, and every reset draws
the noise of the memory and the timer. A serialised state holds both as text: 624 words and a
position (C++'s ``operator<<``), so they can be moved on without playing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
from ale_py import Action, ALEInterface, ALEState, LoggerMode

from colobus.core.arrays import Bytes, Ints
from colobus.envs.api import GameSettings, halved, in_planes, rom_of

DRAWS_PER_FRAME = 2
"""Numbers that a frame draws: for the first and for the second player."""

MOST = 100_000
"""Numbers that one reset may draw. The largest memory of a cartridge has some thousand bytes."""

HEAD = 24
"""Bytes before the emulator's part of a state: six integers, of which the third counts frames."""

GENERATOR = re.compile(rb"(?:\d+ ){624}")
"""Words of a Mersenne Twister; its position follows, and its length in four bytes is before it."""


def fast_forward_rng(ale: ALEInterface, resets: int, frames: int) -> None:
    """Move the random numbers of a freshly loaded game on.

    A state is six integers, a string (the emulator's part), and two integers. The emulator's part
    has the console's generator in it, as a string, and ends with that of the environment. An
    integer has four bytes, the lowest first; a string has its length before it.

    Args:
        ale: with a seeded and loaded game that was not played yet.
        resets: how often the game is to have been reset since it was loaded.
        frames: how many frames are to have been played.
    """
    if not (resets or frames):
        return
    state = ale.cloneState(include_rng=True).serialize()
    console, environment = _generators(state)
    draws = 0
    if resets:
        ale.reset_game()
        after = ale.cloneState(include_rng=True).serialize()
        draws = resets * distance(state[console], after[_generators(after)[0]])
    inner = (
        state[HEAD + 4 : console.start - 4]
        + _string(moved(state[console], draws))
        + state[console.stop : environment.start - 4]
        + _string(moved(state[environment], DRAWS_PER_FRAME * frames))
    )
    head = state[:8] + _bytes(frames) + state[12:HEAD]
    ale.restoreState(ALEState(head + _string(inner) + state[environment.stop :]))


def _generators(state: bytes) -> tuple[slice, slice]:
    """Return where the generators of the console and of the environment are in a state."""
    begins = [found.start() for found in GENERATOR.finditer(state)]
    console, environment = (
        slice(begin, begin + int.from_bytes(state[begin - 4 : begin], "little")) for begin in begins
    )
    return console, environment


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


def _twister(text: bytes) -> np.random.MT19937:
    *words, position = map(int, text.split())
    twister = np.random.MT19937()
    key = np.array(words, dtype=np.uint32)
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
    return twister


def _text(twister: np.random.MT19937) -> bytes:
    state = twister.state["state"]
    return " ".join(map(str, [*state["key"].tolist(), int(state["pos"])])).encode()


def _bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _string(data: bytes) -> bytes:
    return _bytes(len(data)) + data


SCREEN = (210, 160)
"""Height and width of the emulator's screen."""

LAST_CODE = 17
"""Largest code of an action; the smallest is 0."""


def frames_behind(state: bytes) -> int:
    """Return the number of frames of its game before a serialised state."""
    return int(ALEState(state).getEpisodeFrameNumber())


class AleStep(NamedTuple):
    """One step of one game. Unlike with `Step`, the next game begins only with a reset."""

    frame: Bytes  # uint8[H, W]; of a step that ends before its last frame that of the one before
    reward: float  # raw
    terminated: bool  # the return ends with this step
    truncated: bool  # cut off by the frame limit
    over: bool  # the game is over: reset it
    forced: bool  # FIRE replaced the action
    code: int  # of the played action in `ale_py.Action`


class AleGame:
    """One Atari game.

    It draws the same number of no-ops as the vector environment built with GNU's C++ library (all
    Linux wheels): Mersenne Twister, then Lemire's bounded integers. On other platforms the two may
    begin a game with different numbers of no-ops.

    Args:
        settings: settings of an Atari game.
        seed: 1 … 2**31 - 2, as drawn by `colobus.core.seeding.game_seeds`.
    """

    def __init__(self, settings: GameSettings, seed: int) -> None:
        self.frame_shape = ((3 if settings.colour else 1) * settings.size, settings.size)
        self._settings = settings
        self._noops = np.random.RandomState(seed)
        rom = rom_of(settings.game)
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ALEInterface()
        self._ale.setFloat("repeat_action_probability", settings.sticky)
        self._ale.setInt("random_seed", seed)
        self._ale.loadROM(rom)
        full = settings.full_actions
        names = self._ale.getLegalActionSet() if full else self._ale.getMinimalActionSet()
        self._names: list[Action] = list(names)
        self.actions = len(self._names)
        self.action_names = tuple(action.name for action in self._names)
        self._has_fire = Action.FIRE in self._names
        colours = (3,) if settings.colour else ()
        self._screens = np.zeros((2, *SCREEN, *colours), dtype=np.uint8)
        self._frames, self._lives = 0, 0
        self._must_fire, self._over = False, True

    def reset(self, watch: Callable[[Bytes], None] | None = None) -> Bytes:
        """Start a new game; return its first frame, uint8[H, W].

        Args:
            watch: called with the first colour screen uint8[210, 160, 3].
        """
        self._ale.reset_game()
        fire = self._has_fire and self._settings.fire_at_reset
        if fire:
            self._ale.act(Action.FIRE)
        for _ in range(self._draw_noops() - int(fire)):
            self._ale.act(Action.NOOP)
            if self._ale.game_over():
                self._ale.reset_game()
        self._begin_episode()
        if watch:
            watch(self._ale.getScreenRGB())
        return self._frame()

    def play_again(self, resets: int, frames: int, opening: int, actions: Bytes) -> Bytes:
        """Bring a game that was not played yet to where another one with its seed stands.

        Only the newest episode is played. The random numbers of those before are passed over.

        Args:
            resets: how often the other one was reset, at least once.
            frames: frames that it had played before the newest reset.
            opening: frames between that reset and the first step: FIRE at reset, and no-ops.
            actions: uint8[N] indices into ``action_names``, as they were sent to the emulator.

        Returns:
            Its newest frame, uint8[H, W].
        """
        fast_forward_rng(self._ale, resets - 1, frames)
        for _ in range(resets):
            self._draw_noops()
        self._ale.reset_game()
        fire = self._has_fire and self._settings.fire_at_reset
        for count in range(opening):
            self._ale.act(Action.FIRE if fire and count == 0 else Action.NOOP)
        self._begin_episode()
        if not len(actions):
            return self._frame()
        act, skip, names = self._ale.act, self._settings.frame_skip, self._names
        for action in actions[:-1].tolist():
            for _ in range(skip):
                act(names[action])
        self._frames, self._lives = skip * (len(actions) - 1), self._ale.lives()
        return self._play(names[int(actions[-1])], False, None).frame

    def counts(self) -> tuple[int, int]:
        """Return the frames played since the game was loaded, and since its newest reset."""
        return self._ale.getFrameNumber(), self._ale.getEpisodeFrameNumber()

    def step(self, action: int, watch: Callable[[Bytes], None] | None = None) -> AleStep:
        """Play one step with action 0 … actions - 1.

        Args:
            action: index into ``action_names``.
            watch: called with the colour screen uint8[210, 160, 3] of each frame of the step.

        Raises:
            ValueError: if the game is over or was never reset.
        """
        if self._over:
            raise ValueError("the game is over: reset it before the next step")
        forced = self._must_fire
        return self._play(Action.FIRE if forced else self._names[action], forced, watch)

    def pass_over(self) -> AleStep:
        """Play a frame more after a game that was cut off, as the vector does in an idle step."""
        self._ale.act(Action.NOOP)
        return AleStep(self._screens[0], 0.0, True, False, True, True, int(Action.NOOP.value))

    def save(self) -> bytes:
        """Return the emulator's state (about 8 kB), without that of its random generator."""
        return bytes(self._ale.cloneState().serialize())

    def replay(self, state: bytes, actions: Ints) -> Bytes:
        """Restore a state and play actions from it, without sticky actions.

        The frame limit then counts all frames of the game, no-ops included.

        Args:
            state: a result of `save` for the same game and version of ale-py (for another one
                ale-py raises SystemError).
            actions: int64[N] codes of `ale_py.Action`. Each is played for one step; none is
                replaced by FIRE after a lost life.

        Returns:
            uint8[N, H, W], the frame after each action.

        Raises:
            ValueError: if the game ends before the last action.
        """
        self._ale.restoreState(ALEState(state))
        self._frames, self._lives = self._ale.getEpisodeFrameNumber(), self._ale.lives()
        self._screens[:] = 0
        frames = []
        for action in actions:
            step = self._play(Action(int(action)), False, None)
            if step.over:
                raise ValueError("the game ended during the replay")
            frames.append(step.frame)
        return np.stack(frames)

    def _begin_episode(self) -> None:
        """Take the first screen of an episode."""
        self._copy_screen(0)
        self._screens[1] = 0
        self._frames, self._lives = 0, self._ale.lives()
        self._must_fire, self._over = False, False

    def _play(self, name: Action, forced: bool, watch: Callable[[Bytes], None] | None) -> AleStep:
        """Play one step."""
        reward, terminated = 0, False
        for left in reversed(range(self._settings.frame_skip)):
            reward += self._ale.act(name)
            self._frames += 1
            if watch:
                watch(self._ale.getScreenRGB())
            terminated = self._ale.game_over()
            if terminated:
                break
            if left < 2:
                self._copy_screen(left)
        truncated = self._frames >= self._settings.max_frames and not terminated
        self._over = terminated or truncated
        lost = self._ale.lives() < self._lives and not terminated
        self._lives = self._ale.lives()
        self._must_fire = lost and self._has_fire and self._settings.fire_on_life_loss
        ends = terminated or (lost and self._settings.life_loss_ends)
        code = int(name.value)
        return AleStep(self._frame(), float(reward), ends, truncated, self._over, forced, code)

    def _draw_noops(self) -> int:
        """Draw 0 … noop_max - 1 from 32-bit words (Lemire 2019, as in GNU's C++ library)."""
        count = self._settings.noop_max
        if count <= 1:
            return 0
        while True:
            product = int(self._noops.randint(2**32, dtype=np.uint32)) * count
            if product % 2**32 >= 2**32 % count:
                return product >> 32

    def _copy_screen(self, index: int) -> None:
        """Copy the emulator's screen into ``_screens[index]``."""
        if self._settings.colour:
            self._ale.getScreenRGB(self._screens[index])
        else:
            self._ale.getScreenGrayscale(self._screens[index])

    def _frame(self) -> Bytes:
        """Return the frame: the maximum of the last two screens, resized."""
        np.maximum(self._screens[0], self._screens[1], out=self._screens[0])
        halves = self._settings.downscale == "maximum"
        side = self._settings.size * (2 if halves else 1)
        small = cv2.resize(self._screens[0], (side, side), interpolation=cv2.INTER_AREA)
        frame: Bytes = np.asarray(small, dtype=np.uint8)
        frame = in_planes(frame) if self._settings.colour else frame
        return halved(frame) if halves else frame
