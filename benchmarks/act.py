"""How long a loaded agent takes for one observation: python benchmarks/act.py

Wall time of `agent.act` with one numpy observation without a batch axis, as in the loop of the
README: stacking and copying to torch, the network, drawing the action. Let nothing else run on the
machine meanwhile. Writes results/act.json; docs/results.md has its table.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import torch

from gelada.core.checkpoint import Checkpoint
from gelada.core.types import Version
from gelada.envs.make import action_names, frame_shape
from gelada.evaluation.agent import Agent
from gelada.experiment.presets import preset
from gelada.experiment.settings import Experiment
from gelada.nets.network import InputStatistics
from gelada.runtime.system import describe_machine
from gelada.training.start import Start, make_network

RESULT = Path(__file__).parent / "results" / "act.json"

WARM, CALLS = 200, 2_000
"""Calls before the measurement, and in it."""


def experiments() -> dict[str, Experiment]:
    """Return the settings of the agents, by what the table calls them."""
    pong, breakout = preset("pong")[0], preset("ppo-breakout")[0]
    nature = replace(breakout.network, torso="nature", width=512)
    return {
        "84x84, network of ppo-breakout (dqn2013)": breakout,
        "84x84, Nature network": replace(breakout, network=nature),
        "42x42, network of Pong (small)": pong,
        "42x42, network of any game (pooled)": preset("breakout")[0],
    }


def untrained(experiment: Experiment) -> Agent:
    """Return an agent with initial weights: they do not change what it costs."""
    shape, actions = frame_shape(experiment.games), len(action_names(experiment.games))
    mean, deviation = np.full(shape, 90, np.float32), np.full(shape, 30, np.float32)
    statistics = InputStatistics(mean, deviation)
    start = Start(statistics, actions, "float32", Version(0, 0), 0, None, {}, None, {})
    net = make_network(experiment, start)
    tensors = {f"parameter/{name}": p.detach().clone() for name, p in net.named_parameters()}
    tensors |= {"input/mean": torch.from_numpy(mean)}
    tensors |= {"input/deviation": torch.from_numpy(deviation)}
    return Agent(experiment, Checkpoint(Version(0, 0), 0, tensors, {}), actions)


def times(agent: Agent, calls: int = CALLS, warm: int = WARM) -> list[float]:
    """Return the milliseconds of each call."""
    height, width = agent.net.mean.shape
    random = np.random.default_rng(1)
    stacks = random.integers(256, size=(64, agent.stack, height, width), dtype=np.uint8)
    found = []
    for number in range(warm + calls):
        began = time.perf_counter()
        agent.act(stacks[number % len(stacks)])
        found.append(1000 * (time.perf_counter() - began))
    return found[warm:]


def main() -> None:
    """Measure all agents, print the medians and write them down."""
    agents = {}
    for name, experiment in experiments().items():
        found = times(untrained(experiment))
        late = quantiles(found, n=20)[-1]
        agents[name] = {"median_ms": round(median(found), 3), "p95_ms": round(late, 3)}
        print(name, agents[name])
    result = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "calls": CALLS,
        "agents": agents,
        "machine": describe_machine(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
