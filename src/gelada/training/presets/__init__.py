"""Presets by name. Each module of this package has the presets of one family of algorithms.

A module defines ``PRESETS`` (experiments by name), ``FAMILIES`` (settings for any game, by the
first word of names such as ``dqn-seaquest``) and ``NOTES`` (lines that `gelada show` prints about
presets of a published system). A new module is added to ``MODULES``.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from gelada.core.errors import GeladaError, nearest
from gelada.envs.names import known_games, parse_game
from gelada.training.experiment import Experiment
from gelada.training.presets import appo, dba3c, gorila, pqn

MODULES: tuple[ModuleType, ...] = (appo, dba3c, gorila, pqn)

PRESETS: dict[str, Experiment] = {
    name: experiment for module in MODULES for name, experiment in module.PRESETS.items()
}

FAMILIES: dict[str, Experiment] = {
    name: experiment for module in MODULES for name, experiment in module.FAMILIES.items()
}
"""Settings for any game, by the first word of names such as ``dqn-seaquest``."""

NOTES: dict[str, tuple[str, ...]] = {
    name: lines for module in MODULES for name, lines in module.NOTES.items()
}

TARGETS = {"breakout": 300, "pong": 10, "riverraid": 4000, "seaquest": 1830, "space_invaders": 700}
"""Mean evaluated scores at which Distributed-BA3C stops early, by game (its run_job.py)."""


def with_target(experiment: Experiment) -> Experiment:
    """Return the experiment with the game's target score in place of ``--until-evaluated auto``.

    Raises:
        GeladaError: if the game has no target score.
    """
    if experiment.stop.until_evaluated != "auto":
        return experiment
    game = experiment.games.game
    if game not in TARGETS:
        raise GeladaError(
            f"--until-evaluated auto: {game} has no target score (only "
            f"{', '.join(TARGETS)} have one); give a number"
        )
    stop = replace(experiment.stop, until_evaluated=float(TARGETS[game]))
    return replace(experiment, stop=stop)


def preset(name: str) -> tuple[Experiment, str]:
    """Return the experiment of a preset or game, and a sentence about its name ("" if none).

    A game may follow the name of a family: ``gorila-seaquest``.

    Raises:
        GeladaError: if the name is unknown; the message lists the nearest known names.
    """
    if name in PRESETS:
        return PRESETS[name], ""
    family, _, rest = name.partition("-")
    own = family in FAMILIES
    try:
        game, sticky, note = parse_game(rest if own else name)
    except GeladaError:
        known = [*PRESETS, *(f"{family}-{game}" for game in known_games() if own), *known_games()]
        raise GeladaError(
            f"unknown game or preset {name!r}: {nearest(name.lower(), known)}"
        ) from None
    if own:
        base = PRESETS.get(f"{family}-{game}", FAMILIES[family])
    else:
        base = PRESETS.get(game, appo.GENERAL)
    base = replace(base, games=replace(base.games, game=game))
    if sticky is not None:
        base = replace(base, games=replace(base.games, sticky=sticky))
    return base, note
