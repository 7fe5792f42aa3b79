"""A trained policy as an ONNX file, and how closely ONNX Runtime computes what torch does.

The file takes observations as the environment gives them and standardises them itself. It returns
the scores of the actions: logits of the policy, or action values. A recurrent policy also takes its
state and returns the next one.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from colobus.core.errors import ColobusError
from colobus.core.files import whole_file
from colobus.core.seeding import game_seeds, generator
from colobus.core.types import Floats, Frames
from colobus.envs.api import close
from colobus.envs.frames import FrameStack
from colobus.envs.make import action_names, agents, frame_shape, frame_type, make_games
from colobus.evaluation.agent import Agent
from colobus.nets.onnx import Acting, export, packages, quiet

FLAG = "--onnx"
"""What errors name."""

GAMES = 8
"""Played at the same time to get observations."""

METADATA = "colobus"
"""Name under which the file keeps what `about` returns, as JSON."""


class Parity(NamedTuple):
    """How closely ONNX Runtime computes what torch does."""

    observations: int  # compared
    difference: float  # largest one between two scores
    same_actions: int  # observations for which both find the same action best


def export_onnx(agent: Agent, out: Path) -> None:
    """Write an agent's policy as an ONNX file, whole or not at all.

    Inputs are ``observations`` and, for a recurrent policy, ``state``; outputs ``scores`` and
    ``next_state``. The number of observations is free.

    Raises:
        ColobusError: if a package is missing, several agents play each game, ``out`` cannot be
            written, or torch cannot export the network.
    """
    if agents(agent.games) > 1:
        raise ColobusError(
            f"{FLAG}: {agent.games.game} has several agents; export one that has one"
        )
    shape = (2, agent.stack, *frame_shape(agent.games))  # two games, which torch follows
    observations = torch.from_numpy(np.zeros(shape, frame_type(agent.games)))
    state = agent.net.initial_state(2)
    example = [observations] if state is None else [observations, state]
    program = export(_acting(agent), example, FLAG)
    program.model.metadata_props[METADATA] = json.dumps(about(agent))
    try:
        with whole_file(out) as temporary, quiet():
            program.save(temporary, external_data=False)
    except OSError as error:
        raise ColobusError(
            f"cannot write {out}: {error.strerror or error}; name another file or make room"
        ) from None


def about(agent: Agent) -> dict[str, Any]:
    """Return what a program needs to know that plays with the file, as JSON values."""
    return {
        "game": agent.games.game,
        "steps": agent.checkpoint.steps,
        "actions": list(action_names(agent.games)),
        "scores": "logits" if agent.policy == "sampled" else "action values",
        "policy": agent.policy,
        "stack": agent.stack,
        "games": asdict(agent.games),
    }


def compare(agent: Agent, file: Path, count: int) -> Parity:
    """Compare ONNX Runtime with torch on observations of the agent's own games.

    A recurrent policy carries its state from step to step in both, each its own.

    Args:
        agent: that the file is of, and that plays the games.
        file: the ONNX file.
        count: observations, at least.

    Raises:
        ColobusError: if ONNX Runtime is missing.
    """
    _, runtime = packages(FLAG)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    acting, random = _acting(agent), generator(1, "export actions")
    games = make_games(agent.games, game_seeds(1, "export", GAMES))
    observed = FrameStack(agent.stack, games.reset())
    ours = theirs = agent.initial_state(games.count)
    worst, same, seen = 0.0, 0, 0
    while seen < count:
        before = ours
        scores, ours = _torch_scores(acting, observed.stacks, before)
        found, theirs = _onnx_scores(session, observed.stacks, theirs)
        worst = float(np.abs(found - scores).max(initial=worst))  # nan stays nan
        same += int((found.argmax(axis=1) == scores.argmax(axis=1)).sum())
        seen += len(scores)
        actions, _ = agent.act(observed.stacks, None, random, state=before)
        step = games.step(actions)
        observed.push(step.frames, step.over)
        ours[step.over], theirs[step.over] = 0.0, 0.0
    close(games)
    return Parity(seen, worst, same)


def _acting(agent: Agent) -> Acting:
    """Return the module that takes observations of the agent's environment."""
    net = agent.net.for_acting(agent.algorithm.acting_heads)
    return Acting(net, agent.algorithm.scores, raw=True).eval()


def _torch_scores(acting: Acting, stacks: Frames, state: Floats) -> tuple[Floats, Floats]:
    """Return scores float32[N, A] and the next state float32[N, S]."""
    with torch.inference_mode():
        if not state.size:
            return acting(torch.from_numpy(stacks)).numpy(), state
        scores, after = acting(torch.from_numpy(stacks), torch.from_numpy(state))
        return scores.numpy(), after.numpy()


def _onnx_scores(session: Any, stacks: Frames, state: Floats) -> tuple[Floats, Floats]:
    """Return the same of ONNX Runtime."""
    given = {"observations": stacks}
    if state.size:
        given["state"] = state
    scores, *after = session.run(None, given)
    return scores, after[0] if after else state
