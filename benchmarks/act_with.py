"""Measures an actor's call for its games on ONNX Runtime beside torch.

    python -m benchmarks.act_with --presets ppo-pong ppo-breakout --games 8

Both score the actions of the same rollouts in turn, with a new version for each; a line of JSON for
each preset has processor-microseconds of a call and milliseconds of a session, the medians.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from statistics import median

import numpy as np
import torch

from gelada.core.types import Version
from gelada.experiment.presets import preset
from gelada.ops.flat import FlatParameters
from gelada.roles.parameters.published import Pulled
from gelada.roles.policy import Policy, make_policy
from gelada.training.start import begin, make_network

STEPS = 64
"""Steps of a rollout."""


def seconds_of(policy: Policy, pulled: Pulled) -> tuple[float, float]:
    """Return the processor seconds of a rollout's first call, and of the others on average."""
    policy.load(pulled)
    times = []
    for t in range(STEPS):
        start = time.thread_time()
        policy.evaluate(t, None)
        times.append(time.thread_time() - start)
    return times[0], sum(times[1:]) / (STEPS - 1)


def measure(name: str, games: int, rollouts: int) -> dict[str, object]:
    """Return what a preset's network takes for so many observations."""
    experiment, _ = preset(name)
    experiment = replace(experiment, network=replace(experiment.network, precision="float32"))
    net = make_network(experiment, begin(experiment))
    vector = FlatParameters(net).values
    forms = {w: make_policy(net, experiment.algorithm, act_with=w) for w in ("torch", "onnx")}
    frames = np.random.default_rng(1).integers(
        0, 255, (games, net.stack, *net.mean.shape), np.uint8
    )
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in forms}
    for policy in forms.values():
        policy.begin(frames, np.full(games, 100), STEPS)
    for number in range(rollouts):
        pulled = Pulled(Version(0, number), vector, (), 0)
        for way, policy in forms.items():
            found[way].append(seconds_of(policy, pulled))
    calls = {way: 1e6 * median(call for _, call in each[1:]) for way, each in found.items()}
    session = 1e3 * median(first for first, _ in found["onnx"][1:])
    line = {f"{way}_us": round(micros, 1) for way, micros in calls.items()}
    ratio = round(calls["onnx"] / calls["torch"], 3)
    return {"preset": name, "games": games, **line, "ratio": ratio, "session_ms": round(session, 2)}


def main() -> None:
    """Measure the presets that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presets", nargs="+", default=["ppo-pong", "ppo-breakout"])
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=50)
    words = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        for name in words.presets:
            print(json.dumps(measure(name, words.games, words.rollouts)), flush=True)


if __name__ == "__main__":
    main()
