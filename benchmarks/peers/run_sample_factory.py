# What is imported here is only in the environment that this runs in.
# mypy: disable-error-code="import-not-found, misc"
"""Sample Factory APPO on an Atari game, counted; runs in its own environment.

Settings are those that its documentation calls "better parameters (more envs, double buffering,
async learning)" (docs/09-environment-integrations/atari.md): 8 games a worker in two halves,
rollouts of 32, batches of 1024, 4 batches used 4 times, normalised input and returns, on top of its
defaults for Atari (sf_examples/atari/atari_params.py). There are as many workers as cores, as
docs/02-configuration/configuration.md has it; the example's 16 are for a larger machine.
Its wrappers give the usual preprocessing: up to 30 no-ops, 4 frames a step, the maximum of the last
two, 84x84 grey, FIRE at the start, signs of rewards; a lost life ends a return.

The network is `convnet_atari`: three convolutions (32 8x8/4, 64 4x4/2, 64 3x3/1), 512 units,
float32.

By default Sample Factory counts emulator frames; `--summaries_use_frameskip=False` makes it count
agent decisions. They are counted by the learner, when it has used them.

With ``--keep`` the network is kept now and then under the names that its layers have in ours, with
the mean and the deviation of each pixel: those of the checkpoint that it saved last, which is at
most `SAVED` seconds old.
"""

from __future__ import annotations

import multiprocessing
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch
from counting import Counts, parser, report
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.train import make_runner
from sf_examples.atari.atari_utils import ATARI_ENVS
from sf_examples.atari.train_atari import parse_atari_args, register_atari_components

SAVED = 15
"""Seconds between two of its checkpoints."""

LAYERS = {
    "encoder.encoders.obs.enc.conv_head.0": "torso.convolutions.0",
    "encoder.encoders.obs.enc.conv_head.2": "torso.convolutions.1",
    "encoder.encoders.obs.enc.conv_head.4": "torso.convolutions.2",
    "encoder.encoders.obs.enc.mlp_layers.0": "torso.hidden",
    "action_parameterization.distribution_linear": "heads.policy",
    "critic_linear": "heads.value",
}
"""The names of its layers, and what ours are called."""

PIXELS = "obs_normalizer.running_mean_std.running_mean_std.obs"
"""Moments of each pixel divided by 255, for each frame of a stack; they are all but equal."""

NUMBERS: list[Any] = [numpy.float64(0).__reduce__()[0], numpy.dtype, numpy.dtypes.Float64DType]
"""What a checkpoint has besides tensors once there is a best reward: a number of NumPy's."""


def keep(checkpoint: str, place: Path) -> None:
    """Write the network of a checkpoint of its own."""
    with torch.serialization.safe_globals(NUMBERS):
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    kept = {
        f"{ours}.{kind}": state[f"{own}.{kind}"].numpy()
        for own, ours in LAYERS.items()
        for kind in ("weight", "bias")
    }
    mean, variance = (state[f"{PIXELS}.running_{moment}"].mean(0) for moment in ("mean", "var"))
    kept["input/mean"] = (255 * mean).numpy()
    kept["input/deviation"] = (255 * (variance + 1e-5).sqrt()).numpy()
    numpy.savez(place, **kept)


class Watch(AlgoObserver):
    """Counts after each training iteration, and ends the training."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def on_training_step(self, runner: Any, _iteration: int) -> None:
        # The runner hears of an iteration's end before it hears of its steps, so the count is
        # that of the iteration before: each count is late by one, the rate is the same.
        ended = [x for each in runner.policy_avg_stats.get("reward", []) for x in each]
        steps = sum(runner.env_steps.values())
        saved = Learner.get_checkpoints(Learner.checkpoint_dir(runner.cfg, 0))
        if saved and (place := self._counts.place_to_keep(steps)):
            keep(saved[-1], place)
        if self._counts.see(steps, ended):
            runner.cfg.train_for_env_steps = 0


def settings(game: str) -> list[str]:
    """Return the words of its own command line."""
    wanted = f"{game}NoFrameskip-v4"
    names = [known.name for known in ATARI_ENVS if known.env_id == wanted]
    if not names:
        raise SystemExit(f"Sample Factory has no {wanted}")
    return [
        "--algo=APPO",
        f"--env={names[0]}",
        "--experiment=peer",
        "--train_dir=train_dir",
        "--device=cpu",
        "--summaries_use_frameskip=False",
        f"--num_workers={os.cpu_count() or 1}",
        "--num_envs_per_worker=8",
        "--worker_num_splits=2",
        "--train_for_env_steps=100000000",
        f"--save_every_sec={SAVED}",
        "--rollout=32",
        "--normalize_input=True",
        "--normalize_returns=True",
        "--serial_mode=False",
        "--async_rl=True",
        "--batch_size=1024",
    ]


def main() -> None:
    chosen = parser(__doc__).parse_args()
    register_atari_components()
    cfg, runner = make_runner(parse_atari_args(settings(chosen.game)))
    counts = Counts(chosen.seconds, chosen.score, keep=chosen.keep)
    runner.register_observer(Watch(counts))
    status = runner.init()
    if status == ExperimentStatus.SUCCESS:
        status = runner.run()
    if status != ExperimentStatus.SUCCESS:
        for child in multiprocessing.active_children():
            child.kill()  # they would go on without the runner, which waits for them
        raise SystemExit(f"Sample Factory ended with status {status}")
    report(
        counts,
        peer="sample-factory-appo",
        version=version("sample-factory"),
        network="convnet_atari, 512 units, float32",
        input="84x84 grey, 4 stacked",
        passes=cfg.num_epochs,
    )


if __name__ == "__main__":
    main()
