"""From settings and seeds to a vector of games."""

from __future__ import annotations

from collections.abc import Callable

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
