"""Runs whose learners compute something else each, for what must hold with all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReuseSettings
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
