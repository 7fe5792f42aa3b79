"""Names of games: ``pong``, ``PongNoFrameskip-v4``, ``ALE/Pong-v5``, ``CartPole-v1``."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import NamedTuple

from gelada.core.errors import GeladaError, nearest
from gelada.envs.make import ENVIRONMENTS
from gelada.envs.own import is_gymnasium

_GYM = re.compile(r"^(?:ALE/)?([A-Za-z0-9]+?)(NoFrameskip|Deterministic)?-v([045])$")


class UnknownGame(GeladaError):
    """There is no game of this name."""


class GameName(NamedTuple):
    """A game and what the way it was named implies."""

    game: str  # ale-py's identifier, such as "space_invaders", or Gymnasium's
    sticky: float | None  # None: the name says nothing
    note: str  # one sentence to print, or ""


@cache
def known_games() -> tuple[str, ...]:
    """Return the names of all games: those of `ENVIRONMENTS`, then those that ale-py carries."""
    from ale_py import roms

    return (*ENVIRONMENTS, *sorted(roms.get_all_rom_ids()))


def is_known(game: str) -> bool:
    """Return whether a run can play a game of this name, as its settings have it.

    Raises:
        GeladaError: if it is an environment whose module or function cannot be found.
    """
    if game in known_games():
        return True
    if not is_gymnasium(game):
        return False
    from gelada.envs import gym  # imported for such names only

    return gym.is_known(game)


def parse_game(name: str) -> GameName:
    """Return the game that ``name`` means, with what the name implies.

    Raises:
        UnknownGame: if there is no such game; the message has the nearest known names.
        GeladaError: if it is an environment that cannot be made or does not fit.
    """
    match = _GYM.match(name)
    bare = match[1] if match else name
    wanted = bare.replace("_", "").lower()
    game = next((g for g in known_games() if g.replace("_", "") == wanted), None)
    if game is None and is_known(name):
        from gelada.envs.gym import fit

        return GameName(name, None, fit(name).note)
    if game is None:
        near = near_environments(name)
        phrase = nearest(name, near) if near else nearest(bare.lower(), known_games())
        raise UnknownGame(f"unknown game {name!r}: {phrase}")
    if not match:
        return GameName(game, None, "")
    kind, version = match[2] or "", match[3]
    sticky = 0.0 if version == "4" else 0.25
    skip = {"NoFrameskip": "1", "Deterministic": "4"}.get(kind, "4" if version == "5" else "2 to 4")
    note = f"{name} implies sticky actions {sticky:g} (taken over)"
    if skip != "4":
        note += f" and frame skip {skip} (Gelada always plays 4 with the maximum of the last two)"
    return GameName(game, sticky, note)


def near_environments(name: str) -> list[str]:
    """Return the environments of Gymnasium whose names are close to an unknown one, closest first.

    There are none for a name that is not written as one of Gymnasium.
    """
    if not is_gymnasium(name):
        return []
    from gelada.envs.gym import known_names

    return difflib.get_close_matches(name.rpartition(":")[2], known_names(), cutoff=0.75)
