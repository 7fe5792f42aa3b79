"""Agents and emulators that several tests play with."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from ale_py import ALEVectorInterface, roms

from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.algorithms.iqn import IQN
from colobus.core.checkpoint import Checkpoint, write_checkpoint
from colobus.core.seeding import game_seeds
from colobus.core.types import Bytes, Floats, Ints, Version
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings
from colobus.envs.make import action_names, environment_of, frame_shape
from colobus.evaluation.agent import Agent
from colobus.evaluation.protocols import PlayedGame
from colobus.experiment.settings import Experiment
from colobus.nets.network import InputStatistics, Network, NetworkSettings
from colobus.runs.config import Config, read_config, write_config

CATCH = GameSettings(game="catch", size=10)
BREAKOUT = GameSettings(game="breakout")


def raw_vector(settings: GameSettings, count: int, stack: int) -> Any:
    """Return ale-py's own vector environment with stacks of its own."""
    emulator: Any = ALEVectorInterface  # its stub knows no defaults
    return emulator(
        rom_path=roms.get_rom_path(settings.game),
        num_envs=count,
        frame_skip=settings.frame_skip,
        stack_num=stack,
        img_height=settings.size,
        img_width=settings.size,
        noop_max=settings.noop_max,
        reward_clipping=False,
        max_episode_steps=settings.max_frames,
        repeat_action_probability=settings.sticky,
        full_action_space=settings.full_actions,
        num_threads=1,
        autoreset_mode="SameStep",
    )


def raw_step(ale: Any, actions: Ints) -> Any:
    """Step ale-py's vector environment."""
    ale.send(actions, np.ones(len(actions), dtype=np.float32))
    return ale.recv()


def make_experiment(settings: GameSettings, stack: int = 4, **network: Any) -> Experiment:
    """Return an experiment with a small network, of which ``network`` changes settings."""
    torso: Any = "tiny" if settings.size < 42 else "small"
    small = NetworkSettings(torso=torso, width=16, stack=stack, precision="float32")
    return Experiment(games=settings, network=replace(small, **network))


def make_checkpoint(experiment: Experiment, actions: int, steps: int = 1000) -> Checkpoint:
    """Return a checkpoint of random parameters, with a policy that is far from uniform."""
    shape, about = frame_shape(experiment.games), environment_of(experiment.games)
    mean = np.full(shape, 90.0, dtype=np.float32)
    statistics = InputStatistics(mean, np.full(shape, 40.0, dtype=np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        heads = partial(experiment.algorithm.heads, actions)
        more: Any = {"planes": about.planes, "masks": about.masks}
        net = Network(experiment.network, shape, heads, statistics, "float32", **more)
    tensors = {f"parameter/{k}": p.detach().clone().contiguous() for k, p in net.named_parameters()}
    head = f"parameter/heads.{experiment.algorithm.acting_heads[0]}."
    for name in tensors:
        if name.startswith(head) and name.endswith("weight") and "embedding" not in name:
            tensors[name] *= 100
    tensors["input/mean"] = torch.from_numpy(statistics.mean)
    tensors["input/deviation"] = torch.from_numpy(statistics.deviation)
    return Checkpoint(Version(0, 7), steps, tensors, {})


def make_agent(
    settings: GameSettings = CATCH,
    stack: int = 4,
    algorithm: APPO | DQN | IQN | None = None,
    **network: Any,
) -> Agent:
    """Return an agent with random parameters."""
    experiment = make_experiment(settings, stack, **network)
    experiment = replace(experiment, algorithm=algorithm or APPO())
    actions = len(action_names(settings))
    return Agent(experiment, make_checkpoint(experiment, actions), actions)


def write_run(folder: Path, settings: GameSettings = CATCH) -> Experiment:
    """Write a run's folder with one checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    experiment = make_experiment(settings)
    actions = len(action_names(settings))
    write_config(folder, Config(settings.game, experiment, actions, {"precision": "float32"}))
    write_checkpoint(folder / "checkpoints", make_checkpoint(experiment, actions))
    return experiment


def add_checkpoint(run: Path, version: int, steps: int | None = None) -> Path:
    """Write another checkpoint into a run of Catch, by default after 100 steps a version.

    Return the path of its tensors.
    """
    steps = 100 * version if steps is None else steps
    checkpoint = make_checkpoint(read_config(run).experiment, 3, steps)
    number, counters = Version(0, version), {"seconds": 0.5 * version}
    return write_checkpoint(
        run / "checkpoints", checkpoint._replace(version=number, counters=counters)
    )


class Ruled(Agent):
    """An agent that acts by a rule. It has no recurrent state, and hands back what it is given."""

    def __init__(self, settings: GameSettings = CATCH) -> None:
        experiment, actions = make_experiment(settings), len(action_names(settings))
        super().__init__(experiment, make_checkpoint(experiment, actions), actions)

    def rule(self, observations: Bytes) -> Ints:
        """Return the actions for observations uint8[N, K, H, W], or for one without N."""
        raise NotImplementedError

    def following(self, state: Any) -> Any:
        """Return the recurrent state after a step."""
        return state

    def act(
        self, observations: Any, policy: Any = None, random: Any = None, *, state: Any = None
    ) -> Any:
        actions = self.rule(observations)
        return actions if state is None else (actions, self.following(state))


class Catcher(Ruled):
    """Plays Catch by a rule: towards the ball, or away from it."""

    def __init__(self, towards: bool = True) -> None:
        super().__init__()
        self.towards = towards

    def rule(self, observations: Bytes) -> Ints:
        single = observations.ndim == 3
        boards = observations[None, -1] if single else observations[:, -1]
        ball = boards[:, :-1].max(axis=1).argmax(axis=1)
        move = np.sign(ball - boards[:, -1].argmax(axis=1))
        if not self.towards:
            move = np.where(ball >= 2, -1, 1)
        actions: Ints = move + 1
        return actions[0] if single else actions


class Scripted(Ruled):
    """Acts by a rule on the whole stack, so that one wrong pixel changes the game; keeps stacks."""

    def __init__(self, settings: GameSettings) -> None:
        super().__init__(settings)
        self.seen: list[Bytes] = []
        self.done: list[Ints] = []

    def rule(self, observations: Bytes) -> Ints:
        self.seen.append(observations.copy())
        weights = np.arange(1, self.stack + 1)
        sums = observations.sum(axis=(-2, -1), dtype=np.int64) @ weights
        actions: Ints = sums // 7 % self.actions
        self.done.append(actions)
        return actions


class Clock(Scripted):
    """Carries the number of the steps that it has taken in a game as its recurrent state."""

    def __init__(self, settings: GameSettings) -> None:
        super().__init__(settings)
        self.states: list[list[int]] = []  # what it was given, call by call

    def initial_state(self, count: int = 1) -> Floats:
        return np.zeros((count, 1), dtype=np.float32)

    def following(self, state: Any) -> Any:
        self.states.append(state[:, 0].astype(int).tolist())
        return state + 1.0


class Waiting(Scripted):
    """Never presses a button."""

    def rule(self, observations: Bytes) -> Ints:
        return np.zeros(observations.shape[:-3], dtype=np.int64)


def decoded(path: Path) -> tuple[Bytes, float]:
    """Return all pictures uint8[N, H, W, 3] of a film and its pictures per second."""
    with av.open(str(path)) as film:
        stream = film.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in film.decode(stream)]
        return np.stack(pictures), len(pictures) / ((film.duration or 0) / av.time_base)


def played_by_hand(
    agent: Agent,
    game: AleGame,
    stack: Bytes | None = None,
    shown: list[Bytes] | None = None,
    pictures: float = math.inf,
) -> PlayedGame:
    """Play one game step by step; it begins anew unless there is a stack, uint8[K, H, W].

    The emulator's pictures go into ``shown``; the game is left when there are enough.
    """
    shown = [] if shown is None else shown
    if stack is None:
        stack = np.zeros((4, 42, 42), dtype=np.uint8)
        stack[-1] = game.reset(shown.append)
    score, steps, over, cut = 0.0, 0, False, False
    while len(shown) < pictures and not over:
        step = game.step(int(agent.act(stack)), shown.append)
        stack = np.concatenate([stack[1:], step.frame[None]])
        score, steps, over, cut = score + step.reward, steps + 1, step.over, step.truncated
    return PlayedGame(score, steps, cut)


@lru_cache
def filmed_by_hand(
    settings: GameSettings, pictures: int, seed: int = 1
) -> tuple[list[Bytes], float, int]:
    """Play the game of a film with `Scripted`; return the emulator's pictures, score and steps."""
    shown: list[Bytes] = []
    game = AleGame(settings, int(game_seeds(seed, "film", 1)[0]))
    played = played_by_hand(Scripted(settings), game, None, shown, pictures)
    return shown, played.score, played.steps
