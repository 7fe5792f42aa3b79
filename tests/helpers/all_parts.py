"""Deterministic runs of Catch in miniature with all parts of APPO that go together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReuseSettings
from colobus.roles.tracker import StopRule, TrackerSettings
from conftest import tuned

BASE = PRESETS["appo-catch"]
"""V-trace, a target policy, a KL term, a learning rate that falls."""


def small(experiment: Experiment, **changes: Any) -> Experiment:
    """Return it deterministic, for six rounds of four actors with four rows each."""
    shape = replace(experiment.shape, actors=4, games=4, servers=2, broadcast_every=2)
    fields: dict[str, Any] = {
        "algorithm": tuned(BASE, target_every=3, pg_rho_bar=1.5, sequence=8, anneal_stages=3),
        "shape": shape,
        "stop": StopRule(steps=512 + 6 * 512),
        "tracker": TrackerSettings(tensorboard=False),
        "deterministic": True,
    }
    return replace(experiment, **(fields | changes))


ALL = small(
    BASE,
    network=replace(BASE.network, recurrent="lstm", autoencoder="latent"),
    shape=replace(small(BASE).shape, replays=2),
    reuse=ReuseSettings(0.5, 5, buffer_batches=3, buffer_order="random"),
)
"""Two queues with old windows of their own, a circular buffer, an LSTM, an autoencoder, and every
second version broadcast."""

PAIR = small(
    PRESETS["catch-pair"],
    network=replace(BASE.network, recurrent="lstm", autoencoder="predict", policies="separate"),
    reuse=ReuseSettings(0.5, 6, buffer_batches=2),
    shape=replace(small(BASE).shape, games=2),
)
"""Two agents with policies of their own, which predict what follows."""
