"""Start of a run: a new one measures its input in random games, a resumed one has a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from gelada.core.checkpoint import newest_checkpoint
from gelada.core.origin import START, Origin
from gelada.core.seeding import game_seeds, sequence
from gelada.core.types import Aux, Frames, Ints, State, Version
from gelada.envs.api import Games
from gelada.envs.make import MakeGames, agents, is_gym, make_games, planes
from gelada.nets.network import (
    FLOOR,
    InputStatistics,
    Network,
    Precision,
    floor_of,
    measure_input,
)
from gelada.nets.precision import faster_precision, native_precision
from gelada.runtime.system import ACTORS, be_nicer
from gelada.training.config import Config
from gelada.training.exact import cut_metrics, origin_of, states_of
from gelada.training.experiment import Experiment


class Start(NamedTuple):
    """State at the start of a run, new or resumed."""

    statistics: InputStatistics
    actions: int
    precision: Precision
    version: Version
    steps: int  # environment steps so far
    parameters: dict[str, torch.Tensor] | None  # None: a new network
    optimizer: dict[str, torch.Tensor]
    aux: Aux | None
    counters: State
    origin: Origin = START  # where its counting began
    saved: dict[str, State] | None = None  # states that actors go on from, by name

    @property
    def exact(self) -> bool:
        """Whether a resumed deterministic run goes on as if it had never stopped."""
        return bool(self.saved) and self.origin.epoch < self.version.epoch


def open_games(
    experiment: Experiment, actors: int | None = None, make: MakeGames | None = None
) -> list[Games]:
    """Return the games of each actor. The emulator takes a tenth of a second to load a game.

    The emulator's threads inherit the priority of the thread that starts them, so this function
    starts them from a thread with the priority of actors.

    Args:
        experiment: all settings.
        actors: number of actors (default: all).
        make: makes the games of an actor (default: `make_games`, with ``--emulators``).
    """
    count, seed = experiment.shape.games, experiment.seed
    actors = experiment.shape.players if actors is None else actors
    make = make or partial(make_games, threads=experiment.shape.emulators)
    with ThreadPoolExecutor(1, initializer=be_nicer, initargs=(ACTORS,)) as thread:
        seeds = [game_seeds(seed, "games", count, index, 0, 0) for index in range(actors)]
        return list(thread.map(partial(make, experiment.games), seeds))


def begin(experiment: Experiment, games: Sequence[Games] | None = None) -> Start:
    """Start a new run: play random games to measure the input, and choose the precision.

    Args:
        experiment: all settings.
        games: games of each actor to play in. The actors can use them afterwards.
    """
    games = open_games(experiment) if games is None else games
    first, wanted = games[0], experiment.network.precision
    rounds = experiment.shape.random_steps // sum(g.count for g in games)
    with ThreadPoolExecutor(len(games)) as threads:
        played = [
            threads.submit(_play_randomly, g, rounds, experiment.seed, i)
            for i, g in enumerate(games)
        ]
        precision: Precision
        if wanted != "auto":
            precision = wanted
        elif experiment.deterministic:
            precision = native_precision()  # a measurement may differ from run to run
        else:
            heads = partial(experiment.algorithm.heads, first.actions)
            precision = faster_precision(
                experiment.network, first.frame_shape, heads, planes=planes(experiment.games)
            )
        frames = np.concatenate([future.result() for future in played])
    steps = rounds * sum(g.count for g in games)
    fresh = Version(0, 0)
    floor = floor_of(frames) if is_gym(experiment.games.game) else FLOOR
    statistics, origin = measure_input(frames, floor), Origin(0, 0, steps)
    return Start(statistics, first.actions, precision, fresh, steps, None, {}, None, {}, origin)


def _play_randomly(games: Games, rounds: int, seed: int, index: int) -> Frames:
    """Play ``rounds`` steps of random actions and return all frames [N, H, W]."""
    random = np.random.default_rng(sequence(seed, "random actions", index))
    frames = [games.reset()]
    for _ in range(rounds):
        actions: Ints = random.integers(games.actions, size=games.count)
        frames.append(games.step(actions).frames)
    return np.concatenate(frames)


def begin_again(folder: Path, config: Config, log: Callable[[str], None]) -> Start:
    """Resume a run from its newest complete checkpoint, with a new epoch.

    Games go on where they stood, if the checkpoint has them. A deterministic run then goes on
    exactly, and lines of metrics after the checkpoint are deleted, as it writes them again.
    """
    path, checkpoint, passed_over = newest_checkpoint(folder / "checkpoints")
    for line in passed_over:
        log(line)
    log(f"going on from {path.name}: {checkpoint.steps:,} steps")
    statistics = checkpoint.group("input")
    precision = config.about["precision"]
    version = Version(checkpoint.version.epoch + 1, checkpoint.version.number)
    origin = origin_of(checkpoint, config.experiment, folder)
    saved = states_of(checkpoint, config.experiment)
    if origin is not None:
        cut_metrics(folder, version.number)
    elif config.experiment.deterministic:
        log("the checkpoint does not hold all of the run's state: the run goes on with new games")
        saved = {}
    return Start(
        InputStatistics(statistics["mean"].numpy(), statistics["deviation"].numpy()),
        config.actions,
        precision,
        version,
        checkpoint.steps,
        checkpoint.group("parameter"),
        checkpoint.group("optimizer"),
        checkpoint.group("aux"),
        checkpoint.counters,
        origin or Origin(version.epoch, version.number, checkpoint.steps),
        saved,
    )


def make_network(experiment: Experiment, start: Start) -> Network:
    """Return the network with initial weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(sequence(experiment.seed, "network").generate_state(1)[0]))
        return Network(
            experiment.network,
            start.statistics.mean.shape,
            partial(experiment.algorithm.heads, start.actions),
            start.statistics,
            start.precision,
            planes=planes(experiment.games),
            agents=agents(experiment.games),
        )
