"""The parts of APPO that can be switched on, and which of them a run has (docs/appo.md)."""

from __future__ import annotations

from typing import NamedTuple

from gelada.algorithms.appo import APPO
from gelada.core.settings import shown
from gelada.training.experiment import Experiment


class Part(NamedTuple):
    """A part of the algorithm, as a run has it."""

    name: str
    on: bool
    flag: str  # the setting that switches it, with its value


def parts_of(experiment: Experiment) -> list[Part]:
    """Return the parts of APPO; [] for another algorithm."""
    appo, shape, network = experiment.algorithm, experiment.shape, experiment.network
    reuse = experiment.reuse
    if not isinstance(appo, APPO):
        return []
    return [
        Part("V-trace", appo.advantage == "vtrace", f"--advantage {appo.advantage}"),
        Part("PPO's clipped loss", appo.policy_loss == "clip", f"--policy-loss {appo.policy_loss}"),
        Part("several epochs", appo.epochs > 1, f"--epochs {appo.epochs}"),
        Part("target policy", appo.target_every > 0, f"--target-every {appo.target_every}"),
        Part("KL term", appo.kl_coeff > 0.0, f"--kl-coeff {shown(appo.kl_coeff)}"),
        Part("adaptive rate", appo.kl_adjust > 1.0, f"--kl-adjust {shown(appo.kl_adjust)}"),
        Part(
            "replay mix",
            reuse.replay_proportion > 0.0,
            f"--replay-proportion {shown(reuse.replay_proportion)}",
        ),
        Part(
            "buffer of batches",
            reuse.buffer_batches > 1,
            f"--buffer-batches {reuse.buffer_batches} --buffer-order {reuse.buffer_order}",
        ),
        Part("recurrent policy", network.recurrent != "none", f"--recurrent {network.recurrent}"),
        Part("autoencoder", network.autoencoder != "off", f"--autoencoder {network.autoencoder}"),
        Part(
            "broadcast interval",
            shape.broadcast_every > 1,
            f"--broadcast-every {shape.broadcast_every}",
        ),
    ]


def in_words(parts: list[Part]) -> str:
    """Return a line that names the parts that are on with their flags, and those that are off."""
    on = [f"{part.name} ({part.flag})" for part in parts if part.on]
    off = [part.name for part in parts if not part.on]
    return f"parts: {', '.join(on) or 'none'}; off: {', '.join(off) or 'none'}"
