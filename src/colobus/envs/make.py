"""The table of environments, their names, and vectors of games from settings and seeds.

A game is an Atari game of ale-py (``pong``, ``PongNoFrameskip-v4``, ``ALE/Pong-v5``), a line of
`ENVIRONMENTS`, or an environment of Gymnasium (``CartPole-v1``) or of the user
(`colobus.core.functions`).
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from colobus.core.errors import ColobusError, nearest
from colobus.core.functions import find_environment, import_module, is_function, is_gymnasium
from colobus.core.types import Ints, State
from colobus.envs.api import Games, GameSettings
from colobus.envs.catch import AGENTS, CatchGames, CatchPairGames

if TYPE_CHECKING:
    from colobus.envs.spaces import Fit

MakeGames = Callable[[GameSettings, Ints], Games]
"""From settings and seeds to a vector of games, such as `make_games`."""


class Environment(NamedTuple):
    """An environment that is not one of Gymnasium; the frames of `ENVIRONMENTS` are grey."""

    make: MakeGames
    action_names: tuple[str, ...]
    frame_shape: tuple[int, int]  # H, W
    agents: int = 1  # that play each game together; their rows are neighbours
    planes: int = 1  # of a frame, such as 3 for an Atari game in colour
    frame_type: str = "uint8"
    masks: int = 0  # actions of the mask at the end of each frame; 0: it has none
    resume: Callable[[State], Games] | None = None  # from what `save` of the games returned

    @property
    def seen_shape(self) -> tuple[int, int]:
        """The shape of a frame without a mask; there is none."""
        return self.frame_shape


def _own(kind: type[CatchGames | CatchPairGames], make: MakeGames, agents: int = 1) -> Environment:
    """Return the line of a class of games."""
    return Environment(make, kind.action_names, kind.frame_shape, agents, resume=kind.resumed)


ENVIRONMENTS = {
    "catch": _own(CatchGames, lambda _settings, seeds: CatchGames(seeds)),
    "catch-dark": _own(CatchGames, lambda _settings, seeds: CatchGames(seeds, dark=True)),
    "catch-pair": _own(CatchPairGames, lambda _settings, seeds: CatchPairGames(seeds), AGENTS),
}
"""Environments by the name of the game (docs/extending.md)."""


def is_atari(game: str) -> bool:
    """Return whether a known game runs on the Atari emulator."""
    return game not in ENVIRONMENTS and not is_gymnasium(game)


def is_gym(game: str) -> bool:
    """Return whether a known game is an environment of Gymnasium or of the user's function."""
    return game not in ENVIRONMENTS and is_gymnasium(game)


def is_vector(settings: GameSettings) -> bool:
    """Return whether the agent observes a vector of numbers instead of pictures."""
    return frame_shape(settings)[0] == 1


def make_games(settings: GameSettings, seeds: Ints, threads: int = 1, processes: int = 0) -> Games:
    """Return a vector of games, one for each seed, with a row for each agent of each game.

    Args:
        settings: how the games are played.
        seeds: int64[B], each in 1 … 2**31 - 2.
        threads: threads of the Atari emulator; other environments use none.
        processes: in which environments of Gymnasium step; 0 for none.

    Raises:
        ColobusError: if an environment of Gymnasium cannot be made or does not fit.
    """
    if settings.game in ENVIRONMENTS:
        return ENVIRONMENTS[settings.game].make(settings, seeds)
    if is_gymnasium(settings.game):
        from colobus.envs.gym import GymGames

        return GymGames(settings, seeds, processes=processes)
    from colobus.envs.atari import AtariGames  # other environments start without the emulator

    return AtariGames(settings, seeds, threads)


def can_resume(game: str) -> bool:
    """Return whether games of this name can go on in another process (`resume_games`)."""
    line = ENVIRONMENTS.get(game)
    return is_atari(game) if line is None else line.resume is not None


def resume_games(settings: GameSettings, state: State) -> Games:
    """Return games that go on where others stood when they were saved.

    Args:
        settings: of those games.
        state: what their ``save`` returned (`colobus.envs.api.Savable`).

    Raises:
        ColobusError: if the environment cannot do that, or a game does not come out as it was.
    """
    if is_atari(settings.game):
        from colobus.envs.replayed_process import ReplayProcess

        return ReplayProcess(settings, state)
    if (resume := ENVIRONMENTS[settings.game].resume) is None:
        raise ColobusError(
            f"games of {settings.game} cannot go on: their environment has no resume"
        )
    return resume(state)


def frame_shape(settings: GameSettings) -> tuple[int, int]:
    """Return the height (of all planes together) and width of a game's frames."""
    return environment_of(settings).frame_shape


def frame_type(settings: GameSettings) -> np.dtype[Any]:
    """Return the type of a game's frames: uint8, or float32 of most vectors."""
    return np.dtype(environment_of(settings).frame_type)


def agents(settings: GameSettings) -> int:
    """Return how many agents play each game: a vector has so many rows for each of its games."""
    own = ENVIRONMENTS.get(settings.game)
    return own.agents if own else 1


def makes_vectors(settings: GameSettings) -> bool:
    """Return whether an environment of Gymnasium is the user's function that makes vectors."""
    from colobus.envs.single import parameters

    return "num_envs" in parameters(settings.game)


def action_names(settings: GameSettings) -> tuple[str, ...]:
    """Return the names of a game's actions, in the order of their indices."""
    return environment_of(settings).action_names or _atari_actions(
        settings.game, settings.full_actions
    )


def environment_of(settings: GameSettings) -> Environment | Fit:
    """Return what describes an environment; of an Atari game all but its actions."""
    if is_gym(settings.game):
        from colobus.envs.single import fit

        return fit(settings)
    count = 3 if settings.colour else 1
    shape = (count * settings.size, settings.size)
    return ENVIRONMENTS.get(settings.game, Environment(make_games, (), shape, planes=count))


@cache
def _atari_actions(game: str, full_actions: bool) -> tuple[str, ...]:
    """Ask the emulator, once for each action set: loading a game takes a tenth of a second."""
    settings = GameSettings(game=game, full_actions=full_actions)
    return make_games(settings, np.array([1])).action_names


_GYM = re.compile(
    r"^(?:(?:ale_py|gymnasium|gym)(?:\.[\w.]*)?:)?(?:ALE/)?([A-Za-z0-9]+?)(NoFrameskip|Deterministic)?-v([045])$"
)

OF_TWO = frozenset({"combat", "joust", "maze_craze", "warlords"})
"""Games for two people. ale-py has their ROMs and cannot play them: it would end the process."""

PACKAGES = {
    "minigrid": ("MiniGrid-", "BabyAI-"),
    "miniworld": ("MiniWorld-",),
    "gymnasium_robotics": ("Fetch", "Hand", "PointMaze", "AntMaze", "Adroit", "FrankaKitchen"),
    "highway_env": ("highway-", "merge-", "roundabout-", "intersection-", "racetrack-"),
    "vizdoom": ("Vizdoom",),
}
"""How names of environments begin that a package adds to Gymnasium, by the package."""


ANY = GameSettings()
"""Says nothing about how an environment is made."""


def gymnasium_id(game: str) -> str:
    """Return what Gymnasium calls a game, such as ALE/Pong-v5; others have the name they have."""
    if is_atari(game):
        return f"ALE/{game.title().replace('_', '')}-v5"
    return game if is_function(game) else game.rpartition(":")[2]


class UnknownGame(ColobusError):
    """There is no game of this name."""


class GameName(NamedTuple):
    """A game and what the way it was named implies."""

    game: str  # ale-py's identifier, such as "space_invaders", or Gymnasium's
    sticky: float | None  # None: the name says nothing
    note: str  # one sentence to print, or ""


def known_games() -> tuple[str, ...]:
    """Return the names of all games: those of `ENVIRONMENTS`, then those that ale-py plays."""
    from ale_py import roms

    return (*ENVIRONMENTS, *sorted(set(roms.get_all_rom_ids()) - OF_TWO))


def is_known(game: str) -> bool:
    """Return whether a run can play a game of this name, as its settings have it.

    Raises:
        ColobusError: if it is an environment whose module or function cannot be found.
    """
    if game in known_games():
        return True
    if not is_gymnasium(game):
        return False
    if find_environment(game) is not None:
        return True
    import gymnasium  # for such names only

    module, _, own = game.rpartition(":")
    if module:
        import_module(module, game)
    return own in gymnasium.registry


def parse_game(name: str, given: GameSettings = ANY) -> GameName:
    """Return the game that ``name`` means, with what the name implies.

    Args:
        name: of a game or environment.
        given: how an environment of Gymnasium is made and seen.

    Raises:
        UnknownGame: if there is no such game; the message has the nearest known names.
        ColobusError: if it is an environment that cannot be made or does not fit.
    """
    gym = sys.modules.get("gymnasium")  # what somebody else has registered there comes first
    own = gym.registry.get(name) if gym else None
    own = own if "ale_py" not in str(own) else None
    match = None if own else _GYM.match(name)
    bare = match[1] if match else name
    wanted = bare.replace("_", "").lower()
    if wanted in {each.replace("_", "") for each in OF_TWO}:
        raise ColobusError(f"{name}: ale-py cannot play this game for two people; take another")
    if bare.startswith("pettingzoo"):
        raise ColobusError(
            f"{name}: games of PettingZoo have several agents; make the side of one agent a "
            "gymnasium.Env in a function of your own, and name it as my_module:function"
        )
    known = () if own else known_games()
    game = next((g for g in known if g.replace("_", "") == wanted), None)
    if game is None and is_known(name):
        from colobus.envs.single import fit

        return GameName(name, None, fit(replace(given, game=name)).note)
    if game is None:
        near = near_environments(name)
        phrase = nearest(name, near) if near else nearest(bare.lower(), known_games())
        raise UnknownGame(f"unknown game {name!r}: {phrase}")
    if not match:
        return GameName(game, None, "")
    kind, version = match[2] or "", match[3]
    sticky = 0.0 if version == "4" else 0.25
    skip = {"NoFrameskip": "1", "Deterministic": "4"}.get(kind, "4" if version == "5" else "2 to 4")
    note = f"{name} implies sticky actions {sticky:g} (taken over, unless --sticky is given)"
    if skip != "4":
        note += f" and frame skip {skip} (not taken over: it is 4, or --frame-skip)"
    return GameName(game, sticky, note)


def near_environments(name: str) -> list[str]:
    """Return the environments of Gymnasium whose names are close to an unknown one.

    There are none for a name that is not written as one of Gymnasium.
    """
    if not is_gymnasium(name):
        return []
    import gymnasium  # for such names only

    for package, begins in PACKAGES.items():
        if name.startswith(begins):
            return [f"{package}:{name}"]
    known = [each for each, spec in gymnasium.registry.items() if "ale_py" not in str(spec)]
    return difflib.get_close_matches(name.rpartition(":")[2], known, cutoff=0.75)
