"""The network: it standardises the input, then applies a torso, an LSTM if asked, and heads.

The torso may compute in bfloat16. The input statistics, the LSTM, the heads and the losses are
float32. A learner keeps float32 weights and casts them in the forward pass (autocast). An actor
holds a copy whose torso has bfloat16 weights (`Network.for_acting`).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from colobus.core.arrays import apart
from colobus.core.types import Floats, Frames
from colobus.nets.autoencoder import FILTERS, Decoder, Encoder, Prediction
from colobus.nets.config import NetworkSettings as NetworkSettings  # part of the public API
from colobus.nets.heads import MakeHeads, Separate, user_heads
from colobus.nets.recurrent import LSTM
from colobus.nets.torsos import Torso, UserTorso


class Scratch:
    """Memory for large tensors that are computed again for each batch.

    New memory of that size comes from the operating system page by page, which takes longer than
    writing the tensor (docs/speed.md). A copy of a `Scratch` is empty.
    """

    def __init__(self) -> None:
        self._memory: dict[str, torch.Tensor] = {}  # by name

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()

    def take(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return a tensor with undefined content. Tensors of the same name share their memory."""
        size, memory = math.prod(shape), self._memory.get(name)
        fits = memory is not None and memory.dtype == dtype and memory.device == device
        if memory is None or not fits or len(memory) < size:
            memory = self._memory[name] = torch.empty(size, dtype=dtype, device=device)
        return memory[:size].view(*shape)


Precision = Literal["float32", "bfloat16"]


class InputStatistics(NamedTuple):
    """Per-pixel mean and standard deviation of frames, frozen before training starts."""

    mean: Floats  # float32[H, W], in units of the frames
    deviation: Floats  # float32[H, W], at least the floor of this kind of frames


FLOOR = 4.0
"""Smallest standard deviation in grey levels. A pixel that was constant in the random games would
otherwise become huge when it changes."""

SYMBOL_FLOOR = 0.5
"""The same for pictures whose values are symbols, such as those of MiniGrid."""

MOST_SYMBOLS = 32
"""Pictures without a value of this or more hold symbols instead of grey levels."""

VECTOR_FLOOR = 0.1
"""The same for vectors of numbers."""

LIMIT = 5.0
"""Standardised pixels are clipped to -`LIMIT` … `LIMIT`."""

VECTOR_LIMIT = 20.0
"""The same for vectors: in the random games they may have stayed near their beginning."""

CODE = "code"
"""Name among a network's outputs of what its decoder or its prediction takes."""


def measure_input(frames: Frames, floor: float | Floats = FLOOR) -> InputStatistics:
    """Return the statistics of frames [N, H, W].

    It takes one row of pixels after the other: all frames as float32 at once would be a large part
    of the memory of a small run, and what is freed is not always given back to the system.

    Args:
        frames: of random games.
        floor: smallest standard deviation, or float32[H, 1].
    """
    mean, deviation = np.empty((2, *frames.shape[1:]), np.float32)
    kind = np.float32 if frames.dtype == np.uint8 else np.float64  # large numbers may vary little
    for row in range(len(mean)):
        values = frames[:, row].astype(np.float32, copy=False)
        mean[row], deviation[row] = values.mean(axis=0, dtype=kind), values.std(axis=0, dtype=kind)
    return InputStatistics(mean, np.maximum(deviation, floor))


def floor_of(frames: Frames, planes: int, masks: int) -> Floats:
    """Return the smallest standard deviations float32[H, 1] for frames [N, H, W].

    Args:
        frames: of any environment, with masks or (0 masks) without.
        planes: of a frame; each may have other units than others and a mask: it has its own value.
    """
    height = apart(frames, masks)[0].shape[1] // planes
    found = np.full((frames.shape[1], 1), VECTOR_FLOOR, np.float32)
    for row in range(0, len(found), height):
        plane = frames[:, row : row + height]
        most = float(plane.max())
        if frames.dtype == np.uint8:
            found[row : row + height] = SYMBOL_FLOOR if most < MOST_SYMBOLS else FLOOR
        elif len(found) > 1 and most > plane.min():
            found[row : row + height] = (most - float(plane.min())) * FLOOR / 255.0
    return found


class Observed(NamedTuple):
    """``M`` observations, and what some networks need to know about them.

    Those of a recurrent network are ``N`` sequences of ``S`` steps, one after the other.
    """

    stacks: torch.Tensor  # [M, K, H, W], preprocessed
    state: torch.Tensor | None = None  # float32[N, 2 * width]: before each sequence
    begins: torch.Tensor | None = None  # bool[N, S]: a game's first step, before which it is 0
    agents: torch.Tensor | None = None  # int64[M]: which agent of its game sees it


class Network(nn.Module):
    """Torso, LSTM if asked, and heads over stacks of standardised frames.

    Args:
        settings: settings of the network.
        frame_shape: (H, W) of a frame; the planes of a colour frame lie one below the other in H.
        heads: makes the heads, given the width of the hidden layer.
        statistics: mean and standard deviation of the input.
        precision: number format in which the torso computes.
        planes: number of planes of a frame: 1 for grey, 3 for red, green and blue.
        masks: actions of the mask at the end of each frame (`colobus.core.arrays.apart`).
        agents: that play each game; with separate policies each has heads of its own.

    Raises:
        ValueError: if a frame is too small for the torso, or H is no multiple of ``planes``.
        ColobusError: if a function of the user makes no such torso or heads.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self,
        settings: NetworkSettings,
        frame_shape: tuple[int, int],
        heads: MakeHeads,
        statistics: InputStatistics,
        precision: Precision,
        *,
        planes: int = 1,
        masks: int = 0,
        agents: int = 1,
    ) -> None:
        super().__init__()
        self.stack, self.width = settings.stack, settings.width
        self.precision = precision
        self._casts = precision == "bfloat16"
        self.limit = VECTOR_LIMIT if frame_shape[0] == 1 else LIMIT
        mean, scale = statistics.mean.copy(), 1.0 / statistics.deviation
        if masks:  # they stay as they are
            frame_shape = rows, columns = apart(mean, masks)[0].shape
            mean[rows:], mean[:, columns:] = 0.0, 0.0
            scale[rows:], scale[:, columns:] = 1.0, 1.0
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("scale", torch.from_numpy(scale))
        self.planes, self.masks = planes, masks
        self.encoder: Encoder | None = None
        kind: Any = UserTorso if settings.own_torso else Torso  # they have the same interface
        self.torso: Torso
        if settings.autoencoder == "latent":
            self.encoder = Encoder(settings, frame_shape, planes)
            latents = replace(settings, stack=FILTERS)
            self.torso, self.block = kind(latents, self.encoder.shape, 1), 1
        else:
            self.torso = kind(settings, frame_shape, planes)
            self.block = self.torso.block
        self.scratch = Scratch()  # memory for the observations of a batch
        self.recurrent: LSTM | None = None
        if settings.recurrent == "lstm":
            self.recurrent = LSTM(settings.width, settings.fc_init)
        self.policies = agents if settings.policies == "separate" else 1
        made = [heads(settings.width) for _ in range(self.policies)]
        if settings.own_heads:
            made = [user_heads(settings.own_heads, one, settings.width) for one in made]
        for head in (head for one in made for head in one.values()):
            head.start(settings.fc_init)
        alike = {name: [one[name] for one in made] for name in made[0]}
        self.heads = nn.ModuleDict(
            {k: Separate(each) if self.policies > 1 else each[0] for k, each in alike.items()}
        )
        self.auxiliary: Decoder | Prediction | None = None  # its parameters come last
        self.auxiliary_weight = settings.autoencoder_weight
        self.auxiliary_part = settings.autoencoder_part
        if settings.autoencoder == "predict":
            actions = next(iter(made[0].values()))(torch.zeros(1, self.width)).shape[1]
            self.auxiliary = Prediction(settings, actions)
        elif settings.autoencoder != "off":
            self.auxiliary = Decoder(settings, frame_shape, planes, self.block)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch stub

    def standardise(self, frames: torch.Tensor) -> torch.Tensor:
        """Return frames […, H, W] as float32 of the same shape, -``limit`` … ``limit``."""
        return torch.sub(frames, self.mean).mul_(self.scale).clamp_(-self.limit, self.limit)

    def preprocess(self, frames: torch.Tensor) -> torch.Tensor:
        """Return frames […, H, W] standardised, of the same shape, in the torso's dtype."""
        values = self.standardise(frames)
        return values.to(torch.bfloat16) if self.precision == "bfloat16" else values

    def apart(self, stacks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return stacks [M, K, H, W] without masks, and bool[M, A] what the newest one allows."""
        seen, allowed = apart(stacks, self.masks)
        return seen.contiguous() if self.masks else stacks, allowed[:, -1]

    def black(self) -> torch.Tensor:
        """Return a black frame after `preprocess`: [H, W]."""
        return self.preprocess(torch.zeros_like(self.mean, dtype=torch.uint8))

    def casting(self) -> AbstractContextManager[object]:
        """Return a context in which float32 weights compute in the network's precision."""
        if not self._casts:
            return nullcontext()
        return torch.autocast(self.mean.device.type, torch.bfloat16)

    def features(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer float32[M, width] of preprocessed stacks [M, K, H, W]."""
        return self._encode(stacks)[1]

    def forward(self, observations: torch.Tensor | Observed) -> dict[str, torch.Tensor]:
        """Return every head's output by name: float32[M, n], or [M, A, atoms] of histograms.

        With an autoencoder the output `CODE` is what its decoder or its prediction takes.

        Args:
            observations: preprocessed stacks [M, K, H, W]; with what it needs to know about them
                for a network that is recurrent or has separate policies.
        """
        given = Observed(observations) if isinstance(observations, torch.Tensor) else observations
        seen, hidden = self._encode(given.stacks)
        if self.recurrent is not None:
            assert given.state is not None
            assert given.begins is not None
            inputs = hidden.view(*given.begins.shape, self.width)
            hidden = self.recurrent.unroll(inputs, given.state, given.begins)[0].flatten(0, 1)
        assert self.policies == 1 or given.agents is not None
        outputs = self.outputs(hidden, given.agents)
        return outputs if self.encoder is None else outputs | {CODE: seen}

    def outputs(
        self, hidden: torch.Tensor, agents: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """Return every head's output by name: float32[M, n], or [M, A, atoms] of histograms.

        The hidden layer is the output `CODE` itself if a decoder or a prediction takes it.

        Args:
            hidden: the last hidden layer [M, width].
            agents: int64[M], the agent of each row, for separate policies. By default the rows are
                those of games, the agents of a game beside each other.
        """
        if self.policies == 1:
            outputs = {name: head(hidden) for name, head in self.heads.items()}
        else:
            if agents is None:
                agents = torch.arange(hidden.shape[0], device=hidden.device) % self.policies
            outputs = {name: head(hidden, agents) for name, head in self.heads.items()}
        takes = self.auxiliary is not None and self.encoder is None
        return outputs | {CODE: hidden} if takes else outputs

    def _encode(self, stacks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the torso sees (latent pictures, or the stacks) and the hidden layer."""
        with self.casting():
            seen = stacks if self.encoder is None else self.encoder(stacks)
            return seen, self.torso.forward(seen).float()

    @property
    def memory(self) -> int:
        """Memory for one observation in float32 values: outputs of all layers but the heads."""
        parts = (self.torso, self.encoder, self.recurrent, self.auxiliary)
        return sum(part.outputs for part in parts if part is not None)

    def step(
        self, stacks: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the last hidden layer float32[B, width] of one step, and the next state.

        Args:
            stacks: preprocessed, [B, K, H, W].
            state: recurrent state float32[B, S] before the step; None for a network without one.
        """
        hidden = self.features(stacks)
        if self.recurrent is None:
            return hidden, state
        assert state is not None
        return self.recurrent.step(hidden, state)

    def initial_state(self, count: int) -> torch.Tensor | None:
        """Return the initial recurrent state of ``count`` games; None if there is no such state."""
        return None if self.recurrent is None else self.recurrent.initial_state(count)

    def as_sequences(self, stacks: torch.Tensor, length: int) -> Observed:
        """Return stacks [M, K, H, W] as the network takes them, for measurements.

        A recurrent network takes them as sequences of ``length`` steps, of which M is a multiple,
        each from the initial state. With separate policies they are of each agent in turn.
        """
        numbers = torch.arange(len(stacks), device=stacks.device)
        seen = Observed(stacks, agents=numbers % self.policies)
        if self.recurrent is None:
            return seen
        count = len(stacks) // length
        begins = torch.zeros(count, length, dtype=torch.bool, device=stacks.device)
        return seen._replace(state=self.recurrent.initial_state(count), begins=begins)

    @contextmanager
    def as_played(self) -> Iterator[None]:
        """Compute as actors do in this context, without dropout and the like in an own torso."""
        learning = [part for part in self.modules() if part.training]
        self.eval()
        try:
            yield
        finally:
            for part in learning:
                part.training = True

    def for_acting(self, heads: Collection[str], precision: Precision | None = None) -> Network:
        """Return a copy without gradients that has only the heads with these names.

        The weights of its torso have the ``precision``, by default the network's, so the forward
        pass casts nothing.
        """
        acting = copy.deepcopy(self).requires_grad_(False).eval()
        acting.heads = nn.ModuleDict({k: head for k, head in acting.heads.items() if k in heads})
        acting.auxiliary, acting._casts = None, False
        acting.precision = precision or self.precision
        if acting.precision == "bfloat16":
            acting.torso.to(torch.bfloat16)
            if acting.encoder is not None:
                acting.encoder.to(torch.bfloat16)
        return acting


GAIN = 1.1
"""bfloat16 is chosen if it is this many times as fast. Otherwise float32 is, which is safer."""


def faster_precision(
    settings: NetworkSettings,
    frame_shape: tuple[int, int],
    heads: MakeHeads,
    samples: int = 128,
    repeats: int = 2,
    *,
    planes: int = 1,
    masks: int = 0,
) -> Precision:
    """Time a forward and backward pass in both precisions and return the faster one.

    Not every processor has AMX or AVX-512 instructions for bfloat16.

    It takes about 0.1 s of CPU time for the small torso and 2 s for ba3c. ``settings``,
    ``frame_shape``, ``heads``, ``planes`` and ``masks`` are as in `Network`.
    """
    seconds = {}
    statistics = InputStatistics(
        np.zeros(frame_shape, dtype=np.float32), np.ones(frame_shape, dtype=np.float32)
    )
    frames = torch.zeros((samples, settings.stack, *frame_shape), dtype=torch.uint8)
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    with torch.random.fork_rng(devices=[]):
        for precision in precisions:
            net = Network(
                settings, frame_shape, heads, statistics, precision, planes=planes, masks=masks
            )
            stacks = net.apart(net.preprocess(frames))[0]
            times = []
            for _ in range(repeats + 1):
                start = time.thread_time()  # of this thread, as other threads may be running
                outputs = net(net.as_sequences(stacks, 1))
                torch.autograd.backward(torch.stack([out.mean() for out in outputs.values()]).sum())
                times.append(time.thread_time() - start)
            seconds[precision] = min(times[1:])  # the first pass also builds kernels
    return "bfloat16" if seconds["float32"] > GAIN * seconds["bfloat16"] else "float32"


def gpu_precision(device: torch.device) -> Precision:
    """Return bfloat16 for a GPU that computes in it (compute capability 8.0 or later)."""
    major, _ = torch.cuda.get_device_capability(device)
    return "bfloat16" if major >= 8 else "float32"


def native_precision() -> Precision:
    """Return bfloat16 if the processor has instructions for it, without a measurement."""
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"
