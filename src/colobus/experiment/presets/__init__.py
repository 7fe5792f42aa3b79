"""Presets by name. Each module of this package has the presets of one family of algorithms.

A module defines ``PRESETS`` (experiments by name), and may define ``FAMILIES`` (settings for any
game, by the first word of names such as ``dqn-seaquest``) and ``NOTES`` (lines that `colobus show`
prints about presets of a published system).
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from colobus.algorithms.api import Algorithm
from colobus.core.errors import ColobusError, nearest
from colobus.core.functions import name_of
from colobus.envs.api import GameSettings
from colobus.envs.make import (
    ANY,
    UnknownGame,
    is_atari,
    is_gym,
    known_games,
    near_environments,
    parse_game,
)
from colobus.experiment.aliases import algorithm_hint
from colobus.experiment.presets import appo, dba3c, dqn, environments
from colobus.experiment.settings import Experiment, find_algorithm
from colobus.nets.config import NetworkSettings

PRESETS = appo.PRESETS | dba3c.PRESETS | dqn.PRESETS | environments.PRESETS

FAMILIES = appo.FAMILIES | dba3c.FAMILIES | dqn.FAMILIES

DEFAULT = "dqn"
"""The family of a game that is named alone and has no preset of its own."""

NOTES = appo.NOTES | dba3c.NOTES | dqn.NOTES

TARGETS = {"breakout": 300, "pong": 10, "riverraid": 4000, "seaquest": 1830, "space_invaders": 700}
"""Mean evaluated scores at which Distributed-BA3C stops early, by game (its run_job.py)."""


def with_target(experiment: Experiment) -> Experiment:
    """Return the experiment with the game's target score in place of ``--until-evaluated auto``.

    Raises:
        ColobusError: if the game has no target score.
    """
    if experiment.stop.until_evaluated != "auto":
        return experiment
    game = experiment.games.game
    if game not in TARGETS:
        raise ColobusError(
            f"--until-evaluated auto: {game} has no target score (only "
            f"{', '.join(TARGETS)} have one); give a number"
        )
    stop = replace(experiment.stop, until_evaluated=float(TARGETS[game]))
    return replace(experiment, stop=stop)


def preset(name: str, given: GameSettings = ANY) -> tuple[Experiment, str]:
    """Return the experiment of a preset or game, and a sentence about its name ("" if none).

    A game may follow the name of a family: ``gorila-seaquest``.

    Args:
        name: of the preset or game.
        given: how an environment of Gymnasium is made and seen.

    Raises:
        ColobusError: if the name is unknown; the message lists the nearest known names.
    """
    if name in PRESETS:
        return PRESETS[name], ""
    family, _, rest = name.partition("-")
    own = family in FAMILIES
    try:
        game, sticky, note = parse_game(rest if own else name, given)
    except UnknownGame:
        if name in FAMILIES:
            raise ColobusError(
                f"{name!r} is an algorithm: name a game in the same word, such as {name}-pong"
            ) from None
        if said := algorithm_hint(name):
            raise ColobusError(f"unknown game or preset {name!r}: {said}") from None
        known = [*PRESETS, *(f"{family}-{game}" for game in known_games() if own), *known_games()]
        near = near_environments(name)
        plain = re.sub(r"^ale/|(noframeskip)?-v\d+$", "", name.lower())  # as Gymnasium has it
        phrase = nearest(name, near) if near else nearest(plain, known)
        raise ColobusError(f"unknown game or preset {name!r}: {phrase}") from None
    if is_gym(game):
        base = environments.for_environment(replace(given, game=game))
        if own and family != "ppo":
            base = environments.in_family(PRESETS[f"{family}-catch"], base)
    elif own:
        base = PRESETS.get(f"{family}-{game}", FAMILIES[family])
    else:
        base = PRESETS.get(game, FAMILIES[DEFAULT])
    return _in_game(base, game, sticky, given), note


def algorithms_with(setting: str, experiment: Experiment) -> str:
    """Return which algorithms have a setting that the experiment's has not; "" if none has it."""
    own = type(experiment.algorithm)
    named: dict[type, str] = {}  # the shortest name of a family by algorithm
    for family in sorted(FAMILIES, key=len):
        kind: Any = type(FAMILIES[family].algorithm)
        if setting in {field.name for field in fields(kind)}:
            named.setdefault(kind, f"{family}-{experiment.games.game}")
    if not named or own in named:
        return ""
    *others, last = (kind.__name__ for kind in named)
    kinds = " and ".join(filter(None, (", ".join(others), last)))
    verb = "has" if len(named) == 1 else "have"
    return f"{kinds} {verb} it, {own.__name__} has not; take {' or '.join(named.values())}"


def in_environment(
    experiment: Experiment, name: str, given: GameSettings = ANY
) -> tuple[Experiment, str]:
    """Return the experiment with another game or environment, and a sentence about its name.

    A score at which the run would end is left out, as it is one of the other game. An environment
    of Gymnasium has a network that fits it, in place of that of an Atari game or one of the presets
    for any environment, which know no large pictures.

    Raises:
        ColobusError: if there is no such game, or it is an environment that does not fit.
    """
    game, sticky, note = parse_game(name, given)
    stop = replace(experiment.stop, until_score=None, until_evaluated=None)
    general = experiment.network in (PRESETS["vector"].network, PRESETS["pixels"].network)
    if is_gym(game) and (is_atari(experiment.games.game) or general):
        network = environments.for_environment(replace(given, game=game)).network
        experiment = replace(experiment, network=network)
    elif general and is_atari(game):
        experiment = replace(experiment, network=NetworkSettings())
    return _in_game(replace(experiment, stop=stop), game, sticky, given), note


def with_algorithm(experiment: Experiment, algorithm: str | type[Algorithm]) -> Experiment:
    """Return the experiment with another algorithm, by name or as a class.

    A class that inherits from the experiment's own keeps the values of the settings that it has
    from there; another one has its defaults.

    Raises:
        ColobusError: if it cannot be found.
    """
    kind: Any = find_algorithm(algorithm if isinstance(algorithm, str) else name_of(algorithm))
    own: Any = experiment.algorithm
    usual = {each.name: each.default for each in fields(own) if issubclass(kind, type(own))}
    kept = {
        each.name: getattr(own, each.name)
        for each in fields(kind)
        if each.name in usual and usual[each.name] == each.default
    }
    return replace(experiment, algorithm=kind(**kept))


def _in_game(
    experiment: Experiment, game: str, sticky: float | None, given: GameSettings
) -> Experiment:
    """Return the experiment with another game, and the sticky actions of its name if it has any."""
    games = replace(experiment.games, game=game)
    if is_gym(game):
        games = replace(games, env_kwargs=given.env_kwargs, observe=given.observe)
    if sticky is not None:
        games = replace(games, sticky=sticky)
    return replace(experiment, games=games)
