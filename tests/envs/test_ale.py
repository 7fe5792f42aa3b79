"""The single game against ale-py's vector environment, and its own extras."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from colobus.core.seeding import game_seeds
from colobus.core.types import Bytes
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings
from colobus.envs.atari import AtariGames


def compare(settings: GameSettings, seed: int, steps: int) -> dict[str, int]:
    """Play the same actions in both; return how often each kind of end happened."""
    vector, single = AtariGames(settings, np.array([seed])), AleGame(settings, seed)
    assert single.action_names == vector.action_names
    rng = np.random.default_rng(seed)
    np.testing.assert_array_equal(single.reset(), vector.reset()[0])
    counts = {"over": 0, "truncated": 0, "forced": 0, "rewards": 0}
    idle = False
    for action in rng.integers(vector.actions, size=steps):
        theirs = vector.step(np.array([action]))
        mine = single.pass_over() if idle else single.step(int(action))
        assert mine.reward == theirs.rewards[0]
        assert (mine.terminated and not idle) == theirs.terminated[0]
        assert theirs.truncated[0] == idle
        assert mine.forced == theirs.forced[0]
        idle = mine.truncated
        assert (mine.over and not idle) == theirs.over[0]
        frame = single.reset() if theirs.over[0] else mine.frame
        np.testing.assert_array_equal(frame, theirs.frames[0])
        counts["over"] += mine.over and not idle
        counts["truncated"] += mine.truncated
        counts["forced"] += mine.forced
        counts["rewards"] += mine.reward != 0
    return counts


BREAKOUT = GameSettings(game="breakout")
CUT_OFF = GameSettings(max_frames=120)
SHORT = GameSettings(max_frames=4)
PLAYED: list[tuple[GameSettings, int, int, dict[str, int]]] = [
    *(
        (GameSettings(game=game, size=84, colour=colour), seed, 250, {"rewards": 1})
        for game in ("pong", "ms_pacman", "space_invaders", "seaquest", "assault")
        for seed in game_seeds(3, game, 1).tolist()
        for colour in (False, True)
    ),
    (BREAKOUT, 12345, 700, {"over": 2}),
    (replace(BREAKOUT, life_loss_ends=True), 12345, 700, {"over": 2}),
    (replace(BREAKOUT, life_loss_ends=True, colour=True), 12345, 700, {"over": 2}),
    (replace(BREAKOUT, fire_at_reset=False), 12345, 700, {"over": 1, "rewards": 1}),
    (replace(BREAKOUT, sticky=0.25), 99, 600, {"over": 1}),
    (CUT_OFF, 7, 320, {"truncated": 10}),
    (replace(CUT_OFF, sticky=0.25), 7, 320, {"truncated": 10}),
    (replace(CUT_OFF, max_frames=117), 7, 320, {"truncated": 10}),  # in the middle of a step
    (replace(CUT_OFF, colour=True), 7, 320, {"truncated": 10}),
    *(  # how many no-ops begin a game is drawn from the seed as ale-py draws it, game after game
        (replace(SHORT, game=game, noop_max=most, fire_at_reset=fire), seed, 12, {"truncated": 5})
        for game in ("pong", "ms_pacman")
        for most in (0, 1, 30)
        for fire in (True, False)
        for seed in game_seeds(1, "first frames", 3).tolist()
    ),
]
"""Settings, seed, steps, and how often something happens at least."""


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "seed", "steps", "least"), PLAYED)
def test_equals_the_vector_environment(
    settings: GameSettings, seed: int, steps: int, least: dict[str, int]
) -> None:
    """Over lost lives, games that end and games that are cut off, too."""
    counts = compare(settings, seed, steps)
    assert all(counts[kind] >= number for kind, number in least.items())
    if "truncated" in least:
        per_game = -(-settings.max_frames // settings.frame_skip) + 1  # one of the steps is idle
        assert counts["truncated"] == counts["over"] == steps // per_game
    else:
        assert counts["forced"] >= 4 * counts["over"]  # five lives: four losses before the last
        assert counts["truncated"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("colour", [False, True])
def test_a_frame_shrunk_by_maximum_keeps_the_brightest_of_four_pixels(colour: bool) -> None:
    large = GameSettings(game="beam_rider", size=84, colour=colour)
    small = replace(large, size=42, downscale="maximum")
    games = AtariGames(large, np.array([7])), AtariGames(small, np.array([7]))
    frames = [each.reset()[0] for each in games]
    for action in range(4):
        frames = [each.step(np.array([action])).frames[0] for each in games]
    rows, columns = frames[1].shape
    cut = frames[0].reshape(rows, 2, columns, 2)
    np.testing.assert_array_equal(frames[1], cut.max(axis=(1, 3)))
    compare(small, 7, 20)


def test_frame_is_the_maximum_of_the_last_two_colour_pictures() -> None:
    game = AleGame(GameSettings(game="space_invaders"), 5)
    pictures: list[Bytes] = []
    game.reset(pictures.append)
    assert len(pictures) == 1
    for t in range(40):
        pictures.clear()
        frame = game.step(t % game.actions, pictures.append).frame
        assert [p.shape for p in pictures] == [(210, 160, 3)] * 4
        # ITU-R 601 luma; the emulator's own grey table may differ by rounding
        grey = np.stack(pictures[-2:]).astype(np.float64) @ np.array([0.299, 0.587, 0.114])
        small = cv2.resize(grey.max(axis=0), (42, 42), interpolation=cv2.INTER_AREA)
        assert np.abs(small - frame).max() <= 1.5


def test_a_colour_frame_is_red_over_green_over_blue() -> None:
    """Each plane is the maximum of the last two pictures in its colour, made smaller."""
    game = AleGame(GameSettings(game="ms_pacman", colour=True), 5)
    assert game.frame_shape == (126, 42)
    pictures: list[Bytes] = []
    frames = [game.reset(pictures.append)]
    kept = [pictures[0]]
    for t in range(40):
        pictures.clear()
        frames.append(game.step(t % game.actions, pictures.append).frame)
        kept.append(np.maximum(pictures[-2], pictures[-1]))
    for frame, picture in zip(frames, kept, strict=True):
        assert (frame.shape, frame.dtype) == ((126, 42), np.dtype(np.uint8))
        planes = frame.reshape(3, 42, 42).astype(int)
        for plane, colour in zip(planes, np.moveaxis(picture, -1, 0), strict=True):
            small = cv2.resize(colour.astype(float), (42, 42), interpolation=cv2.INTER_AREA)
            assert np.abs(plane - small).max() <= 1
    red, green, blue = (np.stack(frames).reshape(-1, 3, 42, 42)[:, i].astype(int) for i in range(3))
    assert np.abs(red - blue).mean() > 20  # so a mixed order would be seen
    assert np.abs(green - blue).mean() > 5


def test_a_game_that_is_over_must_be_reset() -> None:
    game = AleGame(replace(GameSettings(), max_frames=8), 1)
    with pytest.raises(ValueError, match="reset it"):
        game.step(0)
    game.reset()
    assert not game.step(0).over
    assert game.step(0).truncated
    with pytest.raises(ValueError, match="reset it"):
        game.step(0)
    game.reset()
    assert not game.step(0).over
