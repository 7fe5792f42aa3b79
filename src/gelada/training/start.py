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
    statistics = measure_input(frames, floor)
    return Start(statistics, first.actions, precision, fresh, steps, None, {}, None, {})


def _play_randomly(games: Games, rounds: int, seed: int, index: int) -> Frames:
    """Play ``rounds`` steps of random actions and return all frames [N, H, W]."""
    random = np.random.default_rng(sequence(seed, "random actions", index))
    frames = [games.reset()]
    for _ in range(rounds):
        actions: Ints = random.integers(games.actions, size=games.count)
        frames.append(games.step(actions).frames)
    return np.concatenate(frames)


def begin_again(folder: Path, config: Config, log: Callable[[str], None]) -> Start:
    """Resume a run from its newest complete checkpoint, with a new epoch and new games."""
    path, checkpoint, passed_over = newest_checkpoint(folder / "checkpoints")
    for line in passed_over:
        log(line)
    log(f"going on from {path.name}: {checkpoint.steps:,} steps")
    statistics = checkpoint.group("input")
    precision = config.about["precision"]
    return Start(
        InputStatistics(statistics["mean"].numpy(), statistics["deviation"].numpy()),
        config.actions,
        precision,
        Version(checkpoint.version.epoch + 1, checkpoint.version.number),
        checkpoint.steps,
        checkpoint.group("parameter"),
        checkpoint.group("optimizer"),
        checkpoint.group("aux"),
        checkpoint.counters,
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
