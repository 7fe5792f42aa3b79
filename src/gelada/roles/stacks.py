"""The stacks of frames that an actor's network is shown, and the scores that it answers with.

A frame is standardised once and is then part of the next K stacks. On the CPU all frames of a
rollout lie one after the other, and a stack is a slice of them. On a GPU each operation that the
host queues costs more than it computes, so a step is one copy of the new frames and one function,
which a CUDA graph can hold: move the stacks on by a frame, and evaluate the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from gelada.core.types import Bools, Frames, Ints
from gelada.nets.network import Network
from gelada.runtime.devices import Recorded

Scores = tuple[torch.Tensor, torch.Tensor | None]
"""Scores of the actions float32[B, A], and the next recurrent state float32[B, S] if there is
one, both on the network's device."""

Act = Callable[[torch.Tensor, torch.Tensor | None], Scores]
"""From preprocessed stacks [B, K, H, W] and recurrent state to scores."""


class Stacks(Protocol):
    """What the games of one actor look like to its network, in rollouts of T steps."""

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """Return the scores of step ``t``; call it once for each step, in their order."""

    def add(self, t: int, frames: Frames, over: Bools) -> None:
        """Take the frames [B, H, W] after step ``t``; games that are over have begun anew."""


def make_stacks(
    net: Network, act: Act, frames: Frames, ages: Ints, length: int, graphs: bool
) -> Stacks:
    """Return what suits the network's device.

    Args:
        net: standardises frames.
        act: evaluates the network.
        frames: [B, K, H, W], the observations that the first rollout begins with.
        ages: int64[B], steps since each game's first observation.
        length: steps of a rollout (T).
        graphs: record a step as a CUDA graph.
    """
    if net.mean.device.type == "cpu" and not graphs:
        return SlicedStacks(net, act, frames, ages, length)
    return MovingStacks(net, act, frames, ages, graphs)


class SlicedStacks:
    """On the CPU: slices of all frames of a rollout."""

    def __init__(self, net: Network, act: Act, frames: Frames, ages: Ints, length: int) -> None:
        self._net, self._act, self._black = net, act, net.black()
        count, self._depth, *shape = frames.shape
        depth = self._depth
        self._frames = self._black.new_empty(count, length + depth, *shape)
        steps = range(length)
        self._before = [self._frames[:, t : t + depth] for t in steps]
        self._after = [self._frames[:, t + depth] for t in steps]
        self._frames[:, -depth:] = net.preprocess(torch.from_numpy(frames))
        for b, old in enumerate(_old(ages, depth)):
            self._frames[b, length : length + old] = self._black

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """See `Stacks`."""
        if t == 0:  # a rollout begins with what the one before ended with
            self._frames[:, : self._depth] = self._frames[:, -self._depth :].clone()
        return self._act(self._before[t], state)

    def add(self, t: int, frames: Frames, over: Bools) -> None:
        """See `Stacks`."""
        self._after[t].copy_(self._net.standardise(torch.from_numpy(frames)))
        for b in np.flatnonzero(over):
            self._frames[b, t + 1 : t + self._depth] = self._black


class MovingStacks:
    """On a device: stacks that move on by a frame, in the same memory.

    The newest frame waits in memory of its own until the next step moves it in.
    """

    def __init__(self, net: Network, act: Act, frames: Frames, ages: Ints, graphs: bool) -> None:
        self._net, self._act, self._black = net, act, net.black()
        depth, device = frames.shape[1], self._black.device
        self._stacks = self._black.new_empty(frames.shape)
        self._stacks[:, 1:] = net.preprocess(torch.from_numpy(frames[:, :-1]).to(device))
        for b, old in enumerate(_old(ages, depth)):
            self._stacks[b, 1 : 1 + old] = self._black
        newest = torch.from_numpy(frames[:, -1])
        pinned = device.type == "cuda"  # so the host need not wait for the copy
        self._sent = torch.empty(newest.shape, dtype=newest.dtype, pin_memory=pinned)
        self._newest = torch.empty_like(self._sent, device=device)
        self._step: Callable[[torch.Tensor | None], Scores] = self._move_and_act
        if graphs:
            self._step = Recorded(self._move_and_act)
        self._send(frames[:, -1])

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:  # noqa: ARG002 - as Stacks
        """See `Stacks`."""
        return self._step(state)

    def add(self, t: int, frames: Frames, over: Bools) -> None:  # noqa: ARG002 - as Stacks
        """See `Stacks`."""
        for b in np.flatnonzero(over):
            self._stacks[b] = self._black
        self._send(frames)

    def _send(self, frames: Frames) -> None:
        """Queue the copy of frames; those before have arrived, as their scores were read."""
        self._sent.copy_(torch.from_numpy(frames))
        self._newest.copy_(self._sent, non_blocking=True)

    def _move_and_act(self, state: torch.Tensor | None) -> Scores:
        newest = self._net.preprocess(self._newest).unsqueeze(1)
        self._stacks.copy_(torch.cat([self._stacks[:, 1:], newest], dim=1))
        return self._act(self._stacks, state)


def _old(ages: Ints, depth: int) -> list[int]:
    """Return by game how many frames of its stack are of the game before, and so are black."""
    return [max(depth - 1 - age, 0) for age in ages.tolist()]
