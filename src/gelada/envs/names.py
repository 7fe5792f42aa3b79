"""Names of games: ``pong``, ``Pong-v0``, ``PongNoFrameskip-v4``, ``ALE/Pong-v5``."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from gelada.core.errors import GeladaError, nearest
from gelada.envs.make import ENVIRONMENTS

_GYM = re.compile(r"^(?:ALE/)?([A-Za-z0-9]+?)(NoFrameskip|Deterministic)?-v([045])$")


class GameName(NamedTuple):
    """A game and what the way it was named implies."""

    game: str  # ale-py's identifier, such as "space_invaders"
    sticky: float | None  # None: the name says nothing
    note: str  # one sentence to print, or ""


@cache
def known_games() -> tuple[str, ...]:
    """Return the names of all games: those of `ENVIRONMENTS`, then those that ale-py carries."""
    from ale_py import roms

    return (*ENVIRONMENTS, *sorted(roms.get_all_rom_ids()))


def parse_game(name: str) -> GameName:
    """Return the game that ``name`` means, with what the name implies.

    Raises:
        GeladaError: if there is no such game; the message has the nearest known names.
    """
    match = _GYM.match(name)
    bare = match[1] if match else name
    wanted = bare.replace("_", "").lower()
    game = next((g for g in known_games() if g.replace("_", "") == wanted), None)
    if game is None:
        raise GeladaError(f"unknown game {name!r}: {nearest(bare.lower(), known_games())}")
    if not match:
        return GameName(game, None, "")
    kind, version = match[2] or "", match[3]
    sticky = 0.0 if version == "4" else 0.25
    skip = {"NoFrameskip": "1", "Deterministic": "4"}.get(kind, "4" if version == "5" else "2 to 4")
    note = f"{name} implies sticky actions {sticky:g} (taken over)"
    if skip != "4":
        note += f" and frame skip {skip} (Gelada always plays 4 with the maximum of the last two)"
    return GameName(game, sticky, note)
