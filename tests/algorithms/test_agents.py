"""Games of several agents: one policy for all, or heads of its own for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.films.player import record
from colobus.experiment.presets import PRESETS
from colobus.nets.network import Network, NetworkSettings
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.outcomes import NO_EVENTS, learn
from helpers.outputs import whole
from helpers.variants import with_network

WIDTH, LENGTH = 16, 6
PAIR = replace(PRESETS["catch-pair"], tracker=NO_EVENTS)
SEPARATE = with_network(PAIR, policies="separate")


def net_of_two(recurrent: Any = "none") -> Network:
    settings = NetworkSettings(torso="tiny", width=WIDTH, stack=1, recurrent=recurrent)
    return make_net(replace(settings, policies="separate"), seed=1, agents=2)


def by_hand(net: Network, hidden: torch.Tensor, name: str, agent: int) -> torch.Tensor:
    """Return the output of one agent's own head, from its parameters by name."""
    named = dict(net.named_parameters())
    own = f"heads.{name}.of_agent.{agent}"
    return hidden @ named[f"{own}.weight"].t() + named[f"{own}.bias"]


@pytest.mark.slow
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_every_row_is_played_and_learned_by_the_heads_of_its_agent(recurrent: str) -> None:
    net, algorithm = net_of_two(recurrent), APPO(sequence=3, minibatch=6)
    with torch.no_grad():
        net.get_parameter("heads.policy.of_agent.1.weight").mul_(100)
    rng = np.random.default_rng(0)
    played = random_trajectory(rng, games=4, length=LENGTH, stack=1)
    state = np.zeros((4, 2 * WIDTH if recurrent == "lstm" else 0), dtype=np.float32)
    batch = as_batch([played._replace(state=state)])
    minibatch = whole(algorithm, net, batch)
    with torch.no_grad():
        found = {k: out.view(4, LENGTH, -1) for k, out in net(minibatch.observations).items()}
        memory = net.initial_state(4)
        for t in range(LENGTH):
            if memory is not None:
                memory = memory.masked_fill((batch.ages[:, t] == 0).unsqueeze(1), 0.0)
            stacks = net.preprocess(batch.frames[:, t : t + 1])
            scores, _ = algorithm.act(net, stacks, memory)
            hidden, memory = net.step(stacks, memory)
            for row in range(4):
                for name in ("policy", "value"):
                    want = by_hand(net, hidden[row], name, row % 2)
                    torch.testing.assert_close(found[name][row, t], want, rtol=1e-4, atol=1e-4)
                want = by_hand(net, hidden[row], "policy", row % 2)
                torch.testing.assert_close(scores[row], want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [PAIR, SEPARATE], ids=["shared", "separate"])
def test_two_agents_learn_evaluate_and_are_filmed(experiment: Any, tmp_path: Path) -> None:
    experiment = replace(experiment, deterministic=True, seed=2)
    learn(experiment, tmp_path / "run", score=0.85, steps=10**9)  # the mean of both agents
    agent = load(tmp_path / "run")
    found = evaluate(agent, episodes=301)
    assert len(found.games) == found.episodes == 302  # 151 games of two agents
    assert found.mean >= 0.7
    assert set(found.lengths) == {9}
    # ten games are few: drawn actions would add chance to their sum, which is -6 at random
    film = record(agent, tmp_path / "pair.gif", seconds=15.0, policy="greedy", several=True)
    assert film.games == 10
    assert film.score >= 5.0
