"""One replay buffer, filled and timed, in the interpreter that has it installed.

    python store_contestants.py NAME MODE TRANSITIONS SECONDS

Prints one JSON line. The task is the same for all: keep TRANSITIONS of eight games with grey
84x84 frames, and hand out batches of 32 transitions with the stacks of four frames before and
after. All run on one core with one thread. Nothing of Gelada is imported here but by its own
contestant, so the file runs in any environment with numpy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

GAMES, STACK, SIDE, BATCH, ACTIONS = 8, 4, 84, 32, 6
EPISODE = 1000
ALPHA, BETA = 0.6, 0.4
CHUNK = 125  # steps of each game added at once

Pair = tuple[Callable[[], Any], Callable[[Any], None] | None]
"""How a batch is drawn, and how new priorities are given for it (None: there are none)."""


def played(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return frames uint8[GAMES, CHUNK + STACK, 84, 84] of which the edges agree when repeated."""
    frames = rng.integers(0, 256, (GAMES, CHUNK + STACK, SIDE, SIDE), dtype=np.uint8)
    frames[:, -STACK:] = frames[:, :STACK]
    return frames


def gelada(mode: str, transitions: int) -> Pair:
    """Return Gelada's replay buffer; a window has one step."""
    import torch

    from gelada.core.types import Trajectory, Version
    from gelada.roles.replay.buffer import ReplayBuffer
    from gelada.roles.replay.frame_ring import BufferShape
    from gelada.roles.replay.rate_limiter import MinimumSize
    from gelada.roles.replay.sampling import Prioritized, Uniform

    torch.set_num_threads(1)
    sampling = Uniform() if mode == "uniform" else Prioritized(ALPHA, beta_end=BETA)
    limiter = MinimumSize(1)
    buffer = BufferShape(transitions, GAMES, BATCH, 1, STACK, (SIDE, SIDE), first_only=True)
    store = ReplayBuffer(buffer, sampling, limiter, patience=0)
    rng = np.random.default_rng(1)
    frames, shape = played(rng), (GAMES, CHUNK)
    for number in range(transitions // (GAMES * CHUNK)):
        first = number * CHUNK
        ages = np.broadcast_to(np.arange(first, first + CHUNK + 1) % EPISODE, (GAMES, CHUNK + 1))
        no = np.zeros(shape, dtype=np.bool_)
        store.add(
            Trajectory(
                0, number, Version(0, number), frames, ages.astype(np.int64),
                rng.integers(ACTIONS, size=shape), np.zeros(shape, np.float32), no, no, ~no,
                np.zeros(shape, np.float32), np.ones(GAMES, np.bool_),
                np.zeros((GAMES, 0), np.float32),
            )
        )  # fmt: skip
    assert store.depth == transitions
    errors = torch.rand(BATCH)
    if mode == "uniform":
        return store.sample, None
    return store.sample, lambda batch: store.update(batch.keys, batch.generations, errors)


def sb3(mode: str, transitions: int) -> Pair:
    """Return Stable-Baselines3's buffer in its form that stores each stack once."""
    import torch
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    assert mode == "uniform"
    torch.set_num_threads(1)
    buffer = ReplayBuffer(
        transitions,
        Box(0, 255, (STACK, SIDE, SIDE), np.uint8),
        Discrete(ACTIONS),
        device="cpu",
        n_envs=GAMES,
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    frames = played(np.random.default_rng(1))
    infos: list[dict[str, Any]] = [{} for _ in range(GAMES)]
    zeros = np.zeros(GAMES)
    for step in range(transitions // GAMES):
        t = step % CHUNK
        now, after = frames[:, t : t + STACK], frames[:, t + 1 : t + 1 + STACK]
        done = np.full(GAMES, (step + 1) % EPISODE == 0)
        buffer.add(now, after, zeros.astype(np.int64), zeros, done, infos)
    return lambda: buffer.sample(BATCH), None


def torchrl(mode: str, transitions: int) -> Pair:
    """Return TorchRL's buffer over tensors in memory, as in its Atari DQN (there on disk)."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import (
        LazyTensorStorage,
        TensorDictPrioritizedReplayBuffer,
        TensorDictReplayBuffer,
    )  # fmt: skip

    torch.set_num_threads(1)
    storage = LazyTensorStorage(transitions)
    if mode == "uniform":
        buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)
    else:
        buffer = TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, storage=storage, batch_size=BATCH
        )
    frames = torch.from_numpy(played(np.random.default_rng(1)))
    stacks = frames.unfold(1, STACK, 1).permute(0, 1, 4, 2, 3)  # [GAMES, CHUNK + 1, 4, 84, 84]
    size = (CHUNK,)
    for number in range(transitions // CHUNK):
        one = stacks[number % GAMES]
        done = torch.zeros(*size, 1, dtype=torch.bool)
        done[-1] = (number + 1) * CHUNK % EPISODE == 0
        follows = {"pixels": one[1:], "reward": torch.zeros(*size, 1), "done": done,
                   "terminated": done}  # fmt: skip
        step = {"pixels": one[:-1], "action": torch.zeros(size, dtype=torch.int64)}
        buffer.extend(TensorDict(step | {"next": TensorDict(follows, size)}, size))
    assert len(buffer) == transitions
    errors = torch.rand(BATCH)
    if mode == "uniform":
        return buffer.sample, None
    return buffer.sample, lambda batch: buffer.update_priority(batch["index"], errors)


def cpprb(mode: str, transitions: int) -> Pair:
    """Return cpprb's buffer with its two means of storing frames once (next_of, stack_compress)."""
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    fields = {
        "obs": {"shape": (SIDE, SIDE, STACK), "dtype": np.uint8},
        "act": {"dtype": np.uint8},
        "rew": {},
        "done": {},
    }
    means = {"next_of": "obs", "stack_compress": "obs"}
    if mode == "uniform":
        buffer = ReplayBuffer(transitions, fields, **means)
    else:
        buffer = PrioritizedReplayBuffer(transitions, fields, alpha=ALPHA, **means)
    frames = played(np.random.default_rng(1))
    stacks = np.lib.stride_tricks.sliding_window_view(frames, STACK, axis=1)
    zeros = np.zeros(CHUNK)
    for number in range(transitions // CHUNK):
        one = stacks[number % GAMES]
        done = zeros.copy()
        over = (number + 1) * CHUNK % EPISODE == 0
        done[-1] = over
        buffer.add(obs=one[:-1], act=zeros.astype(np.uint8), rew=zeros, next_obs=one[1:], done=done)
        if over:
            buffer.on_episode_end()
    assert buffer.get_stored_size() == transitions
    errors = np.random.default_rng(2).random(BATCH)
    if mode == "uniform":
        return lambda: buffer.sample(BATCH), None
    return (
        lambda: buffer.sample(BATCH, beta=BETA),
        lambda batch: buffer.update_priorities(batch["indexes"], errors),
    )


CONTESTANTS = {"gelada": gelada, "sb3": sb3, "torchrl": torchrl, "cpprb": cpprb}


def rate(work: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Return calls per second, and per second of processor time (more, if the core is shared)."""
    for _ in range(50):
        work()
    calls, begin, used = 0, time.perf_counter(), time.process_time()
    while (now := time.perf_counter()) < begin + seconds:
        for _ in range(10):
            work()
        calls += 10
    return calls / (now - begin), calls / (time.process_time() - used)


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    name, mode, transitions, seconds = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    count = int(transitions) // (GAMES * EPISODE) * GAMES * EPISODE
    CONTESTANTS[name](mode, GAMES * EPISODE)  # a small one, so that all libraries are loaded
    before = resident()
    sample, update = CONTESTANTS[name](mode, count)
    figures = {"transitions": count, "resident_per_transition": (resident() - before) / count}
    works: dict[str, Callable[[], Any]] = {"batches": sample}
    if update is not None:
        works["with_update"] = lambda: update(sample())
    for figure, work in works.items():
        figures[f"{figure}_per_s"], figures[f"{figure}_per_cpu_s"] = rate(work, float(seconds))
    print(json.dumps({name: round(figure, 1) for name, figure in figures.items()}))


if __name__ == "__main__":
    main()
