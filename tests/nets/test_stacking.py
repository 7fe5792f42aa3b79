"""Stacks out of single frames against ale-py's own stacks, and against a plain transcription."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gelada.core.seeding import game_seeds
from gelada.core.types import Bytes, Ints
from gelada.envs.api import GameSettings
from gelada.envs.atari import AtariGames
from gelada.nets.observations import all_stacks, blank
from helpers.players import raw_step, raw_vector
from helpers.stacking import stack_at

DEPTH = 4


def play(settings: GameSettings, steps: int) -> tuple[Bytes, Ints, Bytes]:
    """Return frames [B, T + K, H, W], ages [B, T + 1], and ale-py's stacks [T + 1, B, K, H, W]."""
    seeds = game_seeds(2, "stacks", 3)
    games = AtariGames(replace(settings, fire_on_life_loss=False), seeds)
    ale = raw_vector(settings, 3, DEPTH)
    frames = np.zeros((3, steps + DEPTH, 42, 42), dtype=np.uint8)
    frames[:, : DEPTH - 1] = 200  # must never be seen: the games are only just beginning
    frames[:, DEPTH - 1] = games.reset()
    ages = np.zeros((3, steps + 1), dtype=np.int64)
    stacks = [ale.reset(np.arange(3), seeds)[0].copy()]
    rng = np.random.default_rng(0)
    for t in range(steps):
        actions = rng.integers(games.actions, size=3)
        step = games.step(actions)
        frames[:, t + DEPTH] = step.frames
        ages[:, t + 1] = np.where(step.over, 0, ages[:, t] + 1)
        stacks.append(raw_step(ale, actions)[0].copy())
    return frames, ages, np.stack(stacks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "steps"),
    [(GameSettings(game="breakout"), 300), (GameSettings(game="pong", max_frames=18), 100)],
    ids=["games lost", "games cut off"],
)
def test_stacks_are_those_of_the_emulator(settings: GameSettings, steps: int) -> None:
    frames, ages, theirs = play(settings, steps)
    starts = (ages == 0).sum() - 3
    assert starts >= 3
    for t in range(steps + 1):
        np.testing.assert_array_equal(stack_at(frames, ages, t, DEPTH), theirs[t])
    views = all_stacks(torch.from_numpy(frames), DEPTH)
    assert views.shape == (3, steps + 1, DEPTH, 42, 42)
    assert views.data_ptr() == torch.from_numpy(frames).data_ptr()  # no copy
    stacks = views.reshape(-1, DEPTH, 42, 42).clone()
    black = torch.zeros(42, 42, dtype=torch.uint8)
    blank(stacks, torch.from_numpy(ages).flatten(), black)
    np.testing.assert_array_equal(stacks.numpy(), theirs.swapaxes(0, 1).reshape(stacks.shape))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_blanking_by_age(depth: int) -> None:
    """At age a the newest a + 1 frames stay; black is whatever black looks like."""
    ages = torch.arange(7)
    black = torch.tensor([[-1.5, -2.5]])
    stacks = torch.rand(7, depth, 1, 2)
    before = stacks.clone()
    assert blank(stacks, ages, black) is stacks
    for age in range(7):
        foreign = max(depth - 1 - age, 0)
        assert torch.equal(stacks[age, :foreign], black.expand(foreign, 1, 2))
        assert torch.equal(stacks[age, foreign:], before[age, foreign:])


def test_stack_at_leaves_the_frames_as_they_are() -> None:
    frames = np.random.default_rng(0).integers(1, 256, (2, 8, 3, 3), dtype=np.uint8)
    before = frames.copy()
    ages = np.array([[0, 1, 2, 3, 4], [9, 10, 11, 0, 1]])
    stack = stack_at(frames, ages, 3, 4)
    np.testing.assert_array_equal(frames, before)
    np.testing.assert_array_equal(stack[0], frames[0, 3:7])
    np.testing.assert_array_equal(stack[1, 3], frames[1, 6])
    assert not stack[1, :3].any()
