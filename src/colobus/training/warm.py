"""A new run that begins with the weights of another one: what is taken over, and what is new."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from colobus.core.checkpoint import Checkpoint, read_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.fields import given
from colobus.envs.make import action_names, is_atari
from colobus.experiment.check import differing
from colobus.experiment.settings import Experiment, flag
from colobus.nets.network import Network
from colobus.ops.distributions import LIMIT
from colobus.runs.config import BEGUN, Config, check_of, read_config
from colobus.runs.exported import unpacked
from colobus.runs.folder import find_files

SEEN = ("size", "colour", "downscale", "frame_skip")
"""Settings of a game that decide what an agent sees."""

HEADS = ("heads.", "auxiliary.")
"""Beginnings of the names of what may be new: it depends on the actions and on the algorithm."""

OF_AGENT = re.compile(r"\.of_agent\.\d+")
"""Of the name of a tensor in a head that each agent has for its own."""


@dataclass(frozen=True)
class Weights:
    """The weights that a run begins with."""

    said: str  # which they are, as the user named them
    config: Config  # of the run that learned them
    checkpoint: Checkpoint  # that has them

    def taken(self, net: Network, experiment: Experiment) -> dict[str, torch.Tensor]:
        """Return the parameters of a new run by name.

        Args:
            net: of the new run, with initial weights; those that do not fit are kept.
            experiment: of the new run.

        Raises:
            ColobusError: if more than heads is of another shape; names tensor and settings.
        """
        found = self.checkpoint.playing()
        own = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
        there = {name: list(values.shape) for name, values in found.items()}
        here = {name: list(values.shape) for name, values in own.items()}
        new = {name for name, shape in here.items() if shape != there.get(name)}
        for name in sorted(new | (there.keys() - here.keys())):
            if not name.startswith(HEADS):
                network = replace(experiment, network=self.config.experiment.network)
                flags = ", ".join(differing(experiment, network))
                instead = f"; leave out {flags}" if flags else ""
                raise ColobusError(
                    f"--from {self.said}: does not fit: {name} is {there.get(name, 'missing')} "
                    f"there and {here.get(name, 'missing')} here{instead}"
                )
        theirs, ours = self.config.experiment.games, experiment.games
        both = is_atari(theirs.game) and is_atari(ours.game)
        if both and action_names(theirs) != action_names(ours):  # of one number, other actions
            new |= _of_size(experiment, self.config.actions, more=1)
        if _meant(self.config.experiment) != _meant(experiment):
            new |= _of_size(experiment, self.config.actions, atoms=1)
        if experiment.network.own_heads:  # whose tensors have names of their own
            heads = tuple(".".join(name.split(".")[:2]) + "." for name in new)
            new |= {name for name in own if name.startswith(heads)}
        kept = [name for name in own if not {name, OF_AGENT.sub("", name)} & new]
        return own | {name: found[name] for name in kept}

    def in_words(self, parameters: dict[str, torch.Tensor]) -> str:
        """Return what the parameters of a run are, of which others than the weights are new."""
        found = self.checkpoint.playing()
        new = [name for name, values in parameters.items() if found.get(name) is not values]
        said = f"{BEGUN}{self.said} after {self.checkpoint.steps:,} steps"
        return f"{said}; new: {', '.join(new)}" if new else said


def check_from(experiment: Experiment, base: Experiment) -> None:
    """Raise ColobusError if settings were given that have no effect in a run with weights."""
    no_decoder = experiment.network.autoencoder == "off"  # which may be new
    chosen = [("shape", "random_steps"), *[("network", "conv_init")] * no_decoder]
    for group, name in chosen:
        value = getattr(getattr(experiment, group), name)
        if value != getattr(getattr(base, group), name):
            raise ColobusError(
                f"{given(flag(name, group), value)}: has an effect only without --from: the "
                "statistics of the input and the convolutions come with the weights"
            )


def _meant(experiment: Experiment) -> tuple[object, ...]:
    """Return what outputs for a value mean beside their number."""
    values = getattr(experiment.algorithm, "values", "numbers")
    return values, getattr(experiment.algorithm, "limit", LIMIT) * (values == "histograms")


def _of_size(experiment: Experiment, actions: int, more: int = 0, atoms: int = 0) -> set[str]:
    """Return the names of the heads' tensors whose shapes change with more actions or atoms."""
    own: Any = experiment.algorithm
    larger = replace(own, atoms=own.atoms + atoms) if hasattr(own, "atoms") else own
    sizes = []
    for algorithm, count in ((own, actions), (larger, actions + more)):
        heads = algorithm.heads(count, experiment.network.width)
        tensors = {n: head.named_parameters() for n, head in heads.items()}
        sizes.append({f"heads.{n}.{k}": p.shape for n, each in tensors.items() for k, p in each})
    return {name for name, shape in sizes[0].items() if shape != sizes[1][name]}


def read_weights(source: str | Path, log: Callable[[str], None]) -> Weights:
    """Return the weights of a run, of a checkpoint's file, of an exported folder or of the zoo.

    Of a run they are those that `colobus.load` would play with.

    Raises:
        ColobusError: if there are none.
    """
    from colobus.runs.best import pick_checkpoint

    folder, file = find_files(source)
    config = read_config(folder, given=("game",))
    if file is None:
        _, checkpoint = pick_checkpoint(folder, "", check_of(config), log)
    else:
        checkpoint = read_checkpoint(file, check_of(config))
    return Weights(str(source), config, unpacked(checkpoint))


def with_network(experiment: Experiment, config: Config) -> Experiment:
    """Return an experiment with the network of another run, and what its agent sees of games."""
    theirs = config.experiment
    network = replace(theirs.network, precision=experiment.network.precision)
    seen = {name: getattr(theirs.games, name) for name in SEEN}
    both = is_atari(theirs.games.game) and is_atari(experiment.games.game)
    games = replace(experiment.games, **seen) if both else experiment.games
    return replace(experiment, network=network, games=games)
