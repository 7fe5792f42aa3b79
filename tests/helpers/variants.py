"""Runs whose learners compute something else each, and runs with all parts that go together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReuseSettings
from colobus.roles.tracker import StopRule, TrackerSettings
from conftest import distributed_catch, tuned

OLDER = ReuseSettings(replay_proportion=0.5, replay_slots=4, buffer_batches=2)


def with_network(base: Experiment, **changes: Any) -> Experiment:
    return replace(base, network=replace(base.network, **changes))


def recurrent(base: Experiment) -> Experiment:
    memory = with_network(base, recurrent="lstm")
    return replace(memory, algorithm=tuned(memory, sequence=8, minibatch=32))


def variants(catch: Experiment) -> dict[str, Experiment]:
    """Return runs of all algorithms by name; those of APPO have the shape of this Catch."""
    how: dict[str, Any] = {"tracker": catch.tracker, "deterministic": catch.deterministic}
    gorila = PRESETS["gorila-catch"]
    shape = replace(gorila.shape, workers=0, asynchronous=False, actors=1, servers=1)
    dqn = replace(gorila, shape=shape, **how)
    pair = replace(catch.games, game="catch-pair")
    forms = ("predict", "auxiliary", "latent")
    return {
        "a memory": recurrent(catch),
        "IMPALA": replace(
            catch, algorithm=tuned(catch, advantage="vtrace", policy_loss="gradient", epochs=1)
        ),
        "older batches": replace(catch, reuse=OLDER),
        "PQN": replace(PRESETS["pqn-catch"], **how),
        "DQN": dqn,
        "DQN with priorities": replace(
            dqn,
            replay=replace(dqn.replay, prioritized=True),
            algorithm=tuned(dqn, returns="q_lambda", double=True, duelling=True),
        ),
        "workers": distributed_catch(100),
        "values as histograms": replace(catch, algorithm=tuned(catch, values="histograms")),
        "DQN with quantiles and Munchausen's term": replace(
            dqn, algorithm=tuned(dqn, values="quantiles", munchausen=0.9, temperature=0.03)
        ),
        "two agents": replace(with_network(catch, policies="separate"), games=pair),
        **{f"an autoencoder: {form}": with_network(catch, autoencoder=form) for form in forms},
    }


BASE = PRESETS["appo-catch"]
"""V-trace, a target policy, a KL term, a learning rate that falls."""


def small(experiment: Experiment, **changes: Any) -> Experiment:
    """Return Catch deterministic, for six rounds of four actors with four rows each."""
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
