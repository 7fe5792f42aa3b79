"""From settings and seeds to a vector of games."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from gelada.core.types import Ints
from gelada.envs.api import Games, GameSettings

MakeGames = Callable[[GameSettings, Ints], Games]
"""From settings and seeds to a vector of games, such as `make_games`."""


def make_games(settings: GameSettings, seeds: Ints, threads: int = 1) -> Games:
    """Return one game per seed; ``threads`` emulator threads play them (Atari only)."""
    if settings.game == "catch":
        from gelada.envs.catch import CatchGames

        return CatchGames(seeds)
    from gelada.envs.atari import AtariGames

    return AtariGames(settings, seeds, threads)


def action_names(settings: GameSettings) -> tuple[str, ...]:
    """Return the names of a game's actions, in the order of their indices."""
    return _action_names(settings.game, settings.full_actions)


@cache
def _action_names(game: str, full_actions: bool) -> tuple[str, ...]:
    """Ask the emulator once for each action set: loading a game takes a tenth of a second."""
    settings = GameSettings(game=game, full_actions=full_actions)
    return make_games(settings, np.array([1])).action_names
