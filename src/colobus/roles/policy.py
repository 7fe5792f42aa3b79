"""What an actor plays with: parameters of one version, and the stacks of frames that it is shown.

A frame is standardised once and is then part of the next K stacks. On the CPU all frames of a
rollout lie one after the other, and a stack is a slice of them. On a GPU each operation that the
host queues costs more than it computes, so a step is one copy of the new frames and one function,
which a CUDA graph can hold: move the stacks on by a frame, and evaluate the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch

from colobus.algorithms.api import Algorithm, Scores
from colobus.core.types import Bools, Frames, Ints, Version
from colobus.nets.network import Network, Precision
from colobus.ops.flat import Layout
from colobus.roles.parameters.published import Pulled, Source
from colobus.runtime.devices import CPU, ActWith, Recorded


class Policy(ABC):
    """Answers the games of one actor, in rollouts of T steps.

    The actor calls `load` with each version that it pulls, `begin` when its games begin or go on,
    and then `evaluate` and `add` in turn. The parameters are in ``net``, a copy of the network's
    parts that acting needs; a policy that computes with something else keeps that in step with it.

    Args:
        net: the network of the run.
        algorithm: how to act.
        device: of the copy.
        precision: likewise, by default the network's.
    """

    def __init__(
        self,
        net: Network,
        algorithm: Algorithm,
        device: torch.device = CPU,
        precision: Precision | None = None,
    ) -> None:
        self.net = net.for_acting(algorithm.acting_heads, precision).to(device)
        self.device = device
        self._algorithm, self._layout = algorithm, Layout(net)
        self._parameters = dict(self.net.named_parameters())
        self._versions: tuple[Version, ...] | None = None  # of each slice

    def needed(self, sources: Sequence[Source]) -> Sequence[Source]:
        """Return those of the sources, one for each slice, that have parameters for acting."""
        return self._layout.owners(sources, self._parameters)

    def load(self, pulled: Pulled) -> None:
        """Take over parameters, unless they are of the version that is there already."""
        if pulled.versions == self._versions:
            return
        vector = pulled.vector.to(self.device)
        for name, view in self._layout.views(vector, self._parameters):
            self._parameters[name].copy_(view)  # converts to the dtype of the copy
        self._versions = pulled.versions

    def forget(self) -> None:
        """Take over whatever is loaded next, as an exploration that failed may have left noise."""
        self._versions = None

    @abstractmethod
    def begin(self, frames: Frames, ages: Ints, length: int) -> None:
        """Begin with games that stand somewhere.

        Args:
            frames: [B, K, H, W], the observations that the first rollout begins with.
            ages: int64[B], steps since each game's first observation.
            length: steps of a rollout (T).
        """

    @abstractmethod
    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """Return the scores of step ``t``; call it once for each step, in their order."""

    @abstractmethod
    def add(self, t: int, frames: Frames, over: Bools) -> None:
        """Take the frames [B, H, W] after step ``t``; games that are over have begun anew."""

    def _act(self, stacks: torch.Tensor, state: torch.Tensor | None) -> Scores:
        """Return the scores of preprocessed stacks [B, K, H, W], and the next recurrent state."""
        return self._algorithm.scores(self.net, stacks, state)


def make_policy(
    net: Network,
    algorithm: Algorithm,
    device: torch.device = CPU,
    cuda_graphs: bool = False,
    act_with: ActWith = "torch",
) -> Policy:
    """Return what suits the device; with ``cuda_graphs`` a step is recorded as a CUDA graph."""
    if act_with == "onnx":
        return OnnxPolicy(net, algorithm)
    if device.type == "cpu" and not cuda_graphs:
        return SlicedPolicy(net, algorithm)
    return MovingPolicy(net, algorithm, device, cuda_graphs)


class SlicedPolicy(Policy):
    """On the CPU: stacks are slices of all frames of a rollout."""

    def begin(self, frames: Frames, ages: Ints, length: int) -> None:
        """See `Policy`."""
        self._black = self.net.black()
        count, self._depth, *shape = frames.shape
        depth = self._depth
        self._frames = self._black.new_empty(count, length + depth, *shape)
        steps = range(length)
        self._before = [self._frames[:, t : t + depth] for t in steps]
        self._after = [self._frames[:, t + depth] for t in steps]
        self._frames[:, -depth:] = self.net.preprocess(torch.from_numpy(frames))
        for b, old in enumerate(_old(ages, depth)):
            self._frames[b, length : length + old] = self._black

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """See `Policy`."""
        if t == 0:  # a rollout begins with what the one before ended with
            self._frames[:, : self._depth] = self._frames[:, -self._depth :].clone()
        return self._act(self._before[t], state)

    def add(self, t: int, frames: Frames, over: Bools) -> None:
        """See `Policy`."""
        self._after[t].copy_(self.net.standardise(torch.from_numpy(frames)))
        for b in np.flatnonzero(over):
            self._frames[b, t + 1 : t + self._depth] = self._black


class OnnxPolicy(SlicedPolicy):
    """On the CPU: ONNX Runtime computes the scores, in float32, of the same slices.

    Each rollout has a session of its own with the weights as constants. As inputs they take twice
    as long.

    Raises:
        ColobusError: if a package is missing, or torch cannot export the network.
    """

    def __init__(self, net: Network, algorithm: Algorithm) -> None:
        from colobus.nets.onnx import Sessions  # only for this

        super().__init__(net, algorithm, precision="float32")
        self._sessions = Sessions(net, algorithm.scores, algorithm.acting_heads, "--act-with onnx")

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """See `Policy`."""
        if t == 0:  # not in `load`, as an exploration may have put noise on the weights since
            self._session = self._sessions.session(self._parameters)
        return super().evaluate(t, state)

    def _act(self, stacks: torch.Tensor, state: torch.Tensor | None) -> Scores:
        given = {"observations": stacks.contiguous().numpy()}
        return torch.from_numpy(self._session.run(None, given)[0]), state


class MovingPolicy(Policy):
    """On a device: stacks move on by a frame, in the same memory.

    The newest frame waits in memory of its own until the next step moves it in.

    Args:
        net: as in `Policy`, as are ``algorithm`` and ``device``.
        cuda_graphs: record a step as a CUDA graph.
    """

    def __init__(
        self, net: Network, algorithm: Algorithm, device: torch.device, cuda_graphs: bool
    ) -> None:
        super().__init__(net, algorithm, device)
        self._cuda_graphs = cuda_graphs

    def begin(self, frames: Frames, ages: Ints, length: int) -> None:
        """See `Policy`."""
        depth, self._black = frames.shape[1], self.net.black()
        self._stacks = self._black.new_empty(frames.shape)
        self._stacks[:, 1:] = self.net.preprocess(torch.from_numpy(frames[:, :-1]).to(self.device))
        for b, old in enumerate(_old(ages, depth)):
            self._stacks[b, 1 : 1 + old] = self._black
        newest = torch.from_numpy(frames[:, -1])
        pinned = self.device.type == "cuda"  # so the host need not wait for the copy
        self._sent = torch.empty(newest.shape, dtype=newest.dtype, pin_memory=pinned)
        self._newest = torch.empty_like(self._sent, device=self.device)
        self._step: Callable[[torch.Tensor | None], Scores] = self._move_and_act
        if self._cuda_graphs:
            self._step = Recorded(self._move_and_act)
        self._send(frames[:, -1])

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """See `Policy`."""
        return self._step(state)

    def add(self, t: int, frames: Frames, over: Bools) -> None:
        """See `Policy`."""
        for b in np.flatnonzero(over):
            self._stacks[b] = self._black
        self._send(frames)

    def _send(self, frames: Frames) -> None:
        """Queue the copy of frames; those before have arrived, as their scores were read."""
        self._sent.copy_(torch.from_numpy(frames))
        self._newest.copy_(self._sent, non_blocking=True)

    def _move_and_act(self, state: torch.Tensor | None) -> Scores:
        newest = self.net.preprocess(self._newest).unsqueeze(1)
        self._stacks.copy_(torch.cat([self._stacks[:, 1:], newest], dim=1))
        return self._act(self._stacks, state)


def _old(ages: Ints, depth: int) -> list[int]:
    """Return by game how many frames of its stack are of the game before, and so are black."""
    return [max(depth - 1 - age, 0) for age in ages.tolist()]
