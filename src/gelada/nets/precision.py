"""Choice of the faster precision.

It is measured, because not every processor has AMX or AVX-512 instructions for bfloat16.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from gelada.nets.heads import MakeHeads
from gelada.nets.network import InputStatistics, Network, NetworkSettings, Precision

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
) -> Precision:
    """Time a forward and backward pass in both precisions and return the faster one.

    It takes about 0.1 s of CPU time for the small torso and 2 s for ba3c. ``settings``,
    ``frame_shape``, ``heads`` and ``planes`` are as in `Network`.
    """
    seconds = {}
    statistics = InputStatistics(
        np.zeros(frame_shape, dtype=np.float32), np.ones(frame_shape, dtype=np.float32)
    )
    frames = torch.zeros((samples, settings.stack, *frame_shape), dtype=torch.uint8)
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    with torch.random.fork_rng(devices=[]):
        for precision in precisions:
            net = Network(settings, frame_shape, heads, statistics, precision, planes=planes)
            stacks = net.preprocess(frames)
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
