"""Start of a run: a new one measures its input in random games, a resumed one has a checkpoint."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import torch

from colobus.core.checkpoint import Check, Checkpoint, OtherFormat, newest_checkpoint
from colobus.core.errors import ColobusError, GameFailed, nearest
from colobus.core.files import CannotRead, locked
from colobus.core.seeding import game_seeds, sequence
from colobus.core.types import START, AlgorithmState, Frames, Origin, State, Version
from colobus.envs.api import Games, close
from colobus.envs.frames import random_actions
from colobus.envs.make import (
    MakeGames,
    action_names,
    agents,
    environment_of,
    frame_shape,
    is_atari,
    is_known,
    known_games,
    make_games,
)
from colobus.experiment.check import differing_for_good
from colobus.experiment.memory import network_of
from colobus.experiment.settings import Experiment, Shape
from colobus.nets.network import (
    FLOOR,
    InputStatistics,
    Network,
    Precision,
    faster_precision,
    floor_of,
    gpu_precision,
    measure_input,
    native_precision,
)
from colobus.ops.optimizers import Optimizer
from colobus.roles.snapshot import WRONG
from colobus.runs.config import Config, check_of, identity, read_config
from colobus.runs.folder import (
    CHECKPOINTS,
    CONFIG,
    EPISODES,
    METRICS,
    free_folder,
    is_only_begun,
    set_aside,
    slug,
)
from colobus.runtime.devices import CPU, Placement, describe_devices
from colobus.runtime.system import ACTORS, be_nicer, describe_machine
from colobus.runtime.threads import PAUSES, RESTARTS
from colobus.training.saving import cut_lines, newest_of, origin_of, states_of
from colobus.training.warm import Weights


@dataclass(frozen=True)
class Start:
    """State at the start of a run, new or resumed."""

    statistics: InputStatistics
    actions: int
    precision: Precision
    version: Version = field(default=Version(0, 0))
    steps: int = 0  # environment steps so far
    parameters: dict[str, torch.Tensor] | None = None  # None: a new network
    optimizer: dict[str, torch.Tensor] = field(default_factory=dict)
    algorithm_state: AlgorithmState | None = None
    counters: State = field(default_factory=dict)
    origin: Origin = START  # where its counting began
    saved: dict[str, State] | None = None  # states that actors go on from, by name
    run: State | None = None  # what checkpoints say about the run

    @property
    def exact(self) -> bool:
        """Whether a resumed deterministic run goes on as if it had never stopped."""
        return bool(self.saved) and self.origin.incarnation < self.version.incarnation


def games_maker(shape: Shape) -> MakeGames:
    """Return what makes the games of an actor."""
    return partial(make_games, threads=shape.emulators, processes=shape.env_processes)


def open_games(
    experiment: Experiment, actors: int | None = None, make: MakeGames | None = None
) -> list[Games]:
    """Return the games of each actor. The emulator takes a tenth of a second to load a game.

    The emulator's threads inherit the priority of the thread that starts them, so this function
    starts them from a thread with the priority of actors.

    Args:
        experiment: all settings.
        actors: number of actors (default: all).
        make: makes the games of an actor (default: `games_maker`).
    """
    count, seed = experiment.shape.games, experiment.seed
    actors = experiment.shape.topology.players if actors is None else actors
    make = make or games_maker(experiment.shape)
    with ThreadPoolExecutor(1, initializer=be_nicer, initargs=(ACTORS,)) as thread:
        seeds = [game_seeds(seed, "games", count, index, 0, 0) for index in range(actors)]
        return list(thread.map(partial(make, experiment.games), seeds))


def begin(
    experiment: Experiment,
    games: list[Games] | None = None,
    device: torch.device = CPU,
    log: Callable[[str], None] = print,
    weights: Weights | None = None,
) -> Start:
    """Start a new run: play random games to measure the input, and choose the precision.

    The input statistics of other weights come with them, and nothing is played.

    Args:
        experiment: all settings.
        games: games of each actor to play in. The actors can use them afterwards. New ones are in
            their place where an environment raised an error.
        device: that learns.
        log: takes lines for the user.
        weights: that the run begins with, instead of new ones.
    """
    games = open_games(experiment) if games is None else games
    first = games[0]
    rounds = experiment.shape.random_steps // sum(g.count for g in games) if not weights else 0
    stop = Event()
    with ThreadPoolExecutor(len(games)) as threads:
        play = partial(_play_randomly, experiment, games, rounds, log, stop)
        played = threads.map(play, range(len(games)))
        try:
            precision = _precision(experiment, first, device)  # measured meanwhile
            frames = np.concatenate(list(played))
        finally:
            stop.set()  # else Ctrl-C waits until all are played
    steps = rounds * sum(g.count for g in games)
    own, atari = environment_of(experiment.games), is_atari(experiment.games.game)
    floor = FLOOR if atari else floor_of(frames, own.planes, own.masks)
    statistics, origin = measure_input(frames, floor), Origin(steps=steps)
    start = Start(statistics, first.actions, precision, steps=steps, origin=origin)
    if weights is None:
        return start
    start = replace(start, statistics=statistics_of(weights.checkpoint))
    there, here = start.statistics.mean.shape, statistics.mean.shape
    if there != here:
        raise ColobusError(
            f"--from {weights.said}: its agent sees {_in_words(there)}, this run's environment "
            f"shows {_in_words(here)}"
        )
    return replace(start, parameters=weights.taken(make_network(experiment, start), experiment))


def _in_words(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} numbers" if shape[0] == 1 else f"frames of {shape[0]}x{shape[1]}"


def begin_new(
    experiment: Experiment,
    name: str,
    placement: Placement,
    remote: bool,
    log: Callable[[str], None],
    weights: Weights | None = None,
) -> tuple[Config, Start, list[Games] | None]:
    """Play random games to measure the input of a new run.

    Args:
        experiment, log, weights: as for `begin`.
        name: game or preset as the user gave it.
        placement: the devices of the run.
        remote: whether the roles live in other processes, where actors open their own games.

    Returns:
        What stands in ``config.json``, the start, and games that are open, if any.
    """
    steps, least = experiment.stop.steps, least_steps(experiment, weights is not None)
    if steps is not None and steps < least:
        random, memory = experiment.shape.random_steps, experiment.replay
        first = f"random ones that measure the input (--random-steps {random}) and "
        first = "" if weights else first
        filled = f"a replay buffer of --minimum {memory.minimum}"
        first += filled if memory.capacity else "a first batch"
        log(f"--steps {steps}: the run will have at least {least:,} steps: {first}")
    games = open_games(experiment, 1 if remote and not experiment.deterministic else None)
    unused = remote or experiment.deterministic  # actors open new ones, wherever they are
    try:
        # in other processes actors compute on CPUs, and this host may have no GPU
        start = begin(experiment, games, placement.act if remote else placement.learn, log, weights)
    except BaseException:
        unused = True
        raise
    finally:
        for own in games if unused else ():
            close(own)
    about = {"run": secrets.token_hex(8), **describe_machine(), "precision": start.precision}
    if weights is not None:
        about["from"] = weights.in_words(start.parameters or {})
        log(about["from"])
    about |= describe_devices(placement, on_ray=remote)
    config = Config(name, experiment, start.actions, about)
    return config, replace(start, run=identity(config)), None if unused else games


def least_steps(experiment: Experiment, begun: bool = False) -> int:
    """Return the fewest environment steps of a run that learns, maybe ``begun`` with weights."""
    shape, memory = experiment.shape, experiment.replay
    rows = agents(experiment.games)
    games = shape.topology.players * shape.games * rows
    random = 0 if begun else shape.random_steps // games * games
    batch = shape.datapoints if shape.batch else shape.datapoints * rows
    return random + (memory.minimum if memory.capacity else batch)


def _precision(experiment: Experiment, games: Games, device: torch.device) -> Precision:
    """Return the precision that is asked for, or else the faster one of the device."""
    wanted = experiment.network.precision
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return gpu_precision(device)
    if experiment.deterministic:
        return native_precision()  # a measurement may differ from run to run
    heads = partial(experiment.algorithm.heads, games.actions)
    own = environment_of(experiment.games)
    return faster_precision(
        experiment.network, games.frame_shape, heads, planes=own.planes, masks=own.masks
    )


def _play_randomly(
    experiment: Experiment,
    games: list[Games],
    rounds: int,
    log: Callable[[str], None],
    stop: Event,
    index: int,
) -> Frames:
    """Play ``rounds`` steps of random actions in an actor's games; return all frames [N, H, W].

    After an error of an environment it begins with new games, as actors do. If ``stop`` is set, it
    ends early: nobody wants the frames.
    """
    random = np.random.default_rng(sequence(experiment.seed, "random actions", index))
    frames: list[Frames] = []
    begins, failures, count = True, 0, environment_of(experiment.games).masks
    while len(frames) <= rounds and not stop.is_set():
        own = games[index]
        try:
            if begins:
                frames.append(own.reset())
                begins = False
            else:
                actions = random_actions(random, own, frames[-1], count)
                frames.append(own.step(actions).frames)
        except GameFailed as error:
            if failures == RESTARTS or stop.wait(PAUSES[failures]):
                raise
            failures += 1
            log(f"{error}; new games begin ({failures} of {RESTARTS})")
            close(own)
            seeds = game_seeds(experiment.seed, "games", experiment.shape.games, index, 0, 0)
            games[index], begins = games_maker(experiment.shape)(experiment.games, seeds), True
    return np.concatenate(frames)


def last_like(name: str, experiment: Experiment, source: str = "") -> Path:
    """Return the last of runs/NAME-1, NAME-2 … with these settings, or the first that is free.

    The stop rule and what is written may differ. ``source`` is as in `Config.source`.
    """
    free = free_folder(name)
    mine = re.compile(rf"{re.escape(slug(name))}-([0-9]{{1,9}})")
    numbers = [
        int(found[1]) for one in free.parent.glob("*") if (found := mine.fullmatch(one.name))
    ]
    for number in sorted(numbers, reverse=True):
        folder = free.with_name(f"{slug(name)}-{number}")
        with suppress(ColobusError):
            config = read_config(folder, given=("game",))
            like = not differing_for_good(experiment, config.experiment)
            if like and config.source == source:
                return folder
    return free


def may_go_on(folder: Path, log: Callable[[str], None]) -> bool:
    """Return whether a run can go on; one that cannot is set aside, so that it can begin anew.

    It cannot without a complete checkpoint, such as after a kill before the first one. Nothing is
    deleted, and a folder with anything that no run writes is left alone.

    Raises:
        ColobusError: if the folder is in use, cannot be renamed, or has a checkpoint that the disk
            does not give now.
    """
    try:
        newest_checkpoint(folder / CHECKPOINTS)
        return True
    except (CannotRead, OtherFormat):
        raise
    except ColobusError:
        pass
    try:
        if folder.is_dir() and is_only_begun(folder):
            with locked(folder, f"the run {folder}", log):
                aside = set_aside(folder)
            log(f"{folder} has no checkpoint to go on from: it is kept as {aside}")
    except OSError as error:
        raise ColobusError(
            f"{folder} cannot be set aside: {error.strerror}; name another folder"
        ) from None
    return False


def begin_again(folder: Path, config: Config, log: Callable[[str], None]) -> Start:
    """Resume a run from its newest complete checkpoint, with a new incarnation.

    Games go on where they stood, if the checkpoint has them. A deterministic run then goes on
    exactly, and lines of metrics after the checkpoint are deleted, as it writes them again.

    Raises:
        ColobusError: if there is none that fits the run, or the game is not the one it was.
    """
    check_game(config, folder / CONFIG)
    for path in (folder / METRICS, folder / EPISODES):
        if path.exists() and not path.is_file():
            raise ColobusError(f"{path}: is no regular file; move it away, then resume")
    if "precision" not in config.about:
        raise ColobusError(f"{folder / CONFIG} cannot be read: about.precision is missing")
    path, checkpoint, passed_over = newest_of(folder, fits(config))
    for line in passed_over:
        log(line)
    log(f"going on from {path.name}: {checkpoint.steps:,} steps")
    algorithm_state = config.experiment.algorithm.start()
    if new := sorted(algorithm_state.keys() - checkpoint.group("aux")):
        log(f"{path.name} has no {', '.join(new)}, which begin anew: an older version wrote it")
    version = Version(checkpoint.version.incarnation + 1, checkpoint.version.number)
    try:
        origin = origin_of(checkpoint, config.experiment, folder)
        saved = states_of(checkpoint, config.experiment) if config.experiment.games_go_on else {}
    except WRONG as error:
        raise ColobusError(f"checkpoint {path.name} has games that cannot be: {error}") from None
    if origin is not None:
        cut_lines(folder, version.number, checkpoint.steps)
    elif config.experiment.deterministic:
        log("the checkpoint does not hold all of the run's state: the run goes on with new games")
        saved = {}
    return Start(
        statistics_of(checkpoint),
        config.actions,
        config.about["precision"],
        version,
        checkpoint.steps,
        checkpoint.group("parameter"),
        checkpoint.group("optimizer"),
        algorithm_state | checkpoint.group("aux"),
        checkpoint.counters,
        origin or Origin(version.incarnation, version.number, checkpoint.steps),
        saved,
        identity(config),
    )


def statistics_of(checkpoint: Checkpoint) -> InputStatistics:
    """Return the input statistics of a checkpoint.

    Raises:
        ColobusError: if they are missing or have another shape; without the checkpoint's name.
    """
    found = checkpoint.group("input")
    for name in ("mean", "deviation"):
        if name not in found or found[name].dim() != 2 or found[name].dtype != torch.float32:
            raise ColobusError(f"has no input/{name}, float32[H, W]")
    mean, deviation = found["mean"], found["deviation"]
    if mean.shape != deviation.shape or not bool((deviation > 0).all()):
        raise ColobusError("has an input/deviation that does not fit its input/mean")
    return InputStatistics(mean.numpy(), deviation.numpy())


def check_frames(checkpoint: Checkpoint, experiment: Experiment) -> InputStatistics:
    """Return the input statistics of a checkpoint; they must have the size of the frames.

    Raises:
        ColobusError: if they have another size, or there are none; without the checkpoint's name.
    """
    statistics = statistics_of(checkpoint)
    found, wanted = statistics.mean.shape, frame_shape(experiment.games)
    if found != wanted:
        raise ColobusError(
            f"is of frames of {found[0]}x{found[1]}, those of config.json are "
            f"{wanted[0]}x{wanted[1]}"
        )
    return statistics


def fits(config: Config) -> Check:
    """Return what refuses checkpoints that a run cannot go on from.

    Those are the checkpoints of other runs, and those in which a tensor is missing or has another
    shape than the run's network, optimizer and algorithm have.
    """
    experiment, is_ours = config.experiment, check_of(config)

    def check(checkpoint: Checkpoint) -> None:
        is_ours(checkpoint)
        statistics = check_frames(checkpoint, experiment)
        net = make_network(experiment, Start(statistics, config.actions, "float32"))
        wanted = {k: tuple(p.shape) for k, p in net.named_parameters()}
        _compare("parameter", wanted, checkpoint)
        state = Optimizer(torch.zeros(1), experiment.optimizer).state()
        scalars: dict[str, tuple[int, ...]] = {k: () for k, t in state.items() if not t.dim()}
        # servers add vectors of their own, such as the target parameters
        own = {name.partition("/")[0] for name in checkpoint.group("optimizer") if "/" in name}
        kinds = (state.keys() - scalars) | own
        vectors = {f"{k}/{name}": shape for k in kinds for name, shape in wanted.items()}
        _compare("optimizer", scalars | vectors, checkpoint)
        algorithm_state, saved = experiment.algorithm.start(), checkpoint.group("aux")
        known = {k: tuple(tensor.shape) for k, tensor in algorithm_state.items() if k in saved}
        _compare("aux", known, checkpoint)

    return check


def _compare(group: str, wanted: dict[str, tuple[int, ...]], checkpoint: Checkpoint) -> None:
    """Raise ColobusError if the tensors of a group have not these names and shapes."""
    tensors = checkpoint.group(group)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            want, have = wanted.get(name, "none"), found.get(name, "missing")
            raise ColobusError(f"does not fit config.json: {group}/{name} is {have}, want {want}")
        if found[name] and tensors[name].dtype != torch.float32:
            raise ColobusError(f"has {group}/{name} in {tensors[name].dtype}, want float32")


def check_game(config: Config, file: Path) -> None:
    """Check that the game is known and has the run's actions.

    An action is an index into the game's action set, so with another set the agent would play
    other actions than it learned, or the emulator would wait for ever.

    Raises:
        ColobusError: if not; names the file.
    """
    games = config.experiment.games
    if not is_known(games.game):
        raise ColobusError(
            f"{file}: unknown game {games.game[:40]!r}: {nearest(games.game, known_games())}"
        )
    actions = len(action_names(games))
    if actions != config.actions:
        kind = "full" if games.full_actions else "minimal"
        raise ColobusError(
            f"{file}: the run has {config.actions} actions, the {kind} action set of {games.game} "
            f"has {actions}; play it with the version of ale-py that trained it"
        )


def make_network(experiment: Experiment, start: Start) -> Network:
    """Return the network with initial weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(sequence(experiment.seed, "network").generate_state(1)[0]))
        return network_of(experiment, start.statistics, start.actions, start.precision)
