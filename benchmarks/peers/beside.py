"""Ours and others on a game, by score: each learns alone, then all play by the same protocol.

    python -m benchmarks.peers.beside beam_rider                 ours and theirs, ten minutes each
    python -m benchmarks.peers.beside beam_rider --minutes 60 --only sb3-dqn    one, for an hour

Let nothing else run on the machine meanwhile. Each has its own recipe and seed 1, and keeps its
network after some minutes (`MARKS`). Then each kept network plays 50 full games by protocol
``noop`` in one program: ours. A peer's network is Nature's, with pixels / 255 or standardised ones,
which ours has too, so its weights are put into a checkpoint of ours; they play as their algorithm
does (a policy sampled, values with epsilon). Seconds are those since the start of our command, and
of a peer since its first step. Every network that played is a line in results/beside.jsonl.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.ledger import RESULTS, Ledger
from benchmarks.lib.process import clean, run
from benchmarks.lib.recipe import within
from benchmarks.lib.timed import read_metrics, train_words
from benchmarks.peers.counting import MARKS
from benchmarks.peers.matches import OURS, PEERS, Peer, run_theirs
from benchmarks.run import now
from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.core.checkpoint import Checkpoint, list_checkpoints
from colobus.core.types import Version
from colobus.envs.api import GameSettings
from colobus.evaluation.agent import Agent
from colobus.evaluation.evaluator import evaluate
from colobus.experiment.settings import Experiment
from colobus.nets.network import NetworkSettings
from colobus.runtime.system import describe_machine

OTHERS = {peer.name: peer for peer in PEERS}
OTHERS["sb3-dqn"] = replace(OTHERS["sb3-ppo"], name="sb3-dqn", words=("--algorithm", "dqn"))

SELF = "colobus"
"""Ours in the place of a peer; `OURS` in the data."""

GAMES = 50

BOOK = RESULTS / "beside.jsonl"

Kept = tuple[float, int, Agent | Path]
"""Seconds, steps, and the network."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", action="append", choices=[SELF, *OTHERS])
    flags = parser.parse_args(args)
    for name in flags.only or [SELF, *OTHERS]:
        with tempfile.TemporaryDirectory() as scratch:
            learn = ours if name == SELF else partial(theirs, OTHERS[name])
            about, kept = learn(flags.game, 60 * flags.minutes, Path(scratch))
            for seconds, steps, agent in kept:
                found = evaluate(agent, "noop", GAMES)
                system = OURS if name == SELF else name
                line = {"system": system, "game": flags.game, "seconds": seconds, "steps": steps}
                line |= {"mean": found.mean, "standard_error": found.standard_error}
                line |= {"policy": found.policy, "scores": found.scores, "protocol": "noop"}
                line |= {**about, "time": now(), "machine": describe_machine()}
                Ledger(BOOK).append(line)
                print(f"{name} {flags.game}: {seconds:.0f} s, {steps:,} steps: {found.mean:.1f}")


def ours(game: str, seconds: float, scratch: Path) -> tuple[dict[str, Any], Iterator[Kept]]:
    """Train as a user does; return what is known of it, and the last checkpoint of each mark."""
    folder = scratch / "run"
    words = train_words(game, 1, folder, "--minutes", f"{seconds / 60:g}")
    words += ["--keep-checkpoints", "0", "--checkpoint-seconds", "30"]
    run(words, scratch / "output.txt")
    metrics, paths = read_metrics(folder), list_checkpoints(folder / "checkpoints")
    found = dict(within(mark, metrics, paths) for mark in MARKS if mark <= seconds)
    kept = ((at["seconds"], int(at["steps"]), path) for path, at in found.items())
    return {"command": clean(words, scratch)}, kept


def theirs(
    peer: Peer, game: str, seconds: float, scratch: Path
) -> tuple[dict[str, Any], Iterator[Kept]]:
    """Train a peer; return what it says of itself, and its networks in ours."""
    keeping = replace(peer, words=(*peer.words, "--keep", str(scratch)))
    said = run_theirs(keeping, game, seconds + 5.0)
    kept = []
    for path in scratch.glob("*.npz"):
        after, steps = map(int, path.stem.split("-"))
        kept.append((after, steps, network_of(dict(np.load(path)), game)))
    kept.sort(key=lambda one: one[0])
    command = said["command"].replace(f" --keep {scratch}", "")
    return {"version": said["version"], "command": command}, iter(kept)


def network_of(weights: dict[str, np.ndarray[Any, Any]], game: str) -> Agent:
    """Return an agent of ours with Nature's network.

    Args:
        weights: by the names of our layers, with a policy and a value, or with action values, and
            mean and deviation of each pixel; without them pixels are divided by 255.
        game: that it plays.
    """
    values = "heads.q.weight" in weights
    actions = len(weights["heads.q.weight" if values else "heads.policy.weight"])
    experiment = Experiment(
        games=GameSettings(game=game, size=84),
        network=NetworkSettings(
            torso="nature", width=512, stack=4, layer_norm=False, precision="float32"
        ),
        algorithm=DQN(epsilon_end=0.01) if values else APPO(),
    )
    tensors = {"input/mean": torch.zeros(84, 84), "input/deviation": torch.full((84, 84), 255.0)}
    for name, value in weights.items():
        own = name if name in tensors else f"parameter/{name}"
        tensors[own] = torch.from_numpy(value).float()
    return Agent(experiment, Checkpoint(Version(0, 1), 0, tensors, {}), actions)


if __name__ == "__main__":
    main()
