"""No two actors may play the same games."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gelada.core.seeding import game_seeds
from gelada.core.types import Bytes, Ints
from gelada.envs.api import GameSettings
from gelada.envs.atari import AtariGames

ACTORS, GAMES = 4, 5


def first_frames(seeds: Ints) -> Bytes:
    return AtariGames(GameSettings(game="freeway", size=84), seeds).reset()


def shared(a: Bytes, b: Bytes) -> int:
    """Return how many games of ``a`` begin as some game of ``b`` does."""
    others = {frame.tobytes() for frame in b}
    return sum(frame.tobytes() in others for frame in a)


def test_seeds_are_in_range_and_all_different() -> None:
    seeds = np.concatenate(
        [
            game_seeds(seed, role, GAMES, *numbers)
            for seed in (0, 1, 2, 5)
            for role in ("games", "random", "evaluation", "film")
            for numbers in ((), *[(i, e, r) for i in range(4) for e in (0, 1) for r in (0, 1)])
        ]
    )
    assert seeds.dtype == np.int64
    assert seeds.min() >= 1
    assert seeds.max() <= 2**31 - 2
    assert len(np.unique(seeds)) == len(seeds)
    np.testing.assert_array_equal(game_seeds(1, "games", 8, 2), game_seeds(1, "games", 8, 2))


@pytest.mark.slow
def test_no_two_actors_have_a_common_first_stack() -> None:
    """A game of Freeway begins in one of 30 ways (its no-ops), so single games may meet.

    What must not happen is that actors begin together: in each place another way.
    """
    frames = [first_frames(game_seeds(1, "games", GAMES, i, 0, 0)) for i in range(ACTORS)]
    met = 0
    for a, b in combinations(frames, 2):
        assert sum(np.array_equal(x, y) for x, y in zip(a, b, strict=True)) <= 1
        met += shared(a, b)
    assert met < 10  # of 6 pairs x 5 games; 4.6 is expected by chance, 24 with neighbouring seeds


@pytest.mark.slow
def test_neighbouring_integer_seeds_would_share_all_games_but_one() -> None:
    """Why `game_seeds` mixes: ale-py's own way of seeding a vector, s, s + 1, s + 2 …"""
    one, two = first_frames(np.arange(1, 1 + GAMES)), first_frames(np.arange(2, 2 + GAMES))
    assert shared(one, two) >= GAMES - 1
