"""All parts of APPO together: equal where they must be, and each of them makes a difference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from conftest import tuned
from gelada.core.types import Version
from gelada.experiment.check import check
from helpers.all_parts import ALL, PAIR
from helpers.outcomes import Outcome, assert_same, inline, threads

pytestmark = pytest.mark.slow


@cache
def oracle() -> Outcome:
    """Return what is left of the run with all parts, one role after the other."""
    return inline(ALL)


def test_all_parts_together_inline_and_on_threads_bit_for_bit() -> None:
    check(ALL)
    assert oracle().version == Version(0, 6)
    assert {"kl_term", "kl_coefficient", "reconstruction_loss"} <= oracle().status.values.keys()
    assert_same(oracle(), threads(ALL))


def test_two_agents_with_policies_of_their_own_inline_and_on_threads_bit_for_bit() -> None:
    check(PAIR)
    found = inline(PAIR)
    assert found.version == Version(0, 6)
    assert "prediction_loss" in found.status.values
    assert_same(found, threads(PAIR))


WITHOUT = {
    "target policy": replace(ALL, algorithm=tuned(ALL, target_every=0)),
    "KL term": replace(ALL, algorithm=tuned(ALL, kl_coeff=0.0)),
    "limit of the ratio in the advantages": replace(ALL, algorithm=tuned(ALL, pg_rho_bar=1.0)),
    "old windows": replace(ALL, reuse=replace(ALL.reuse, replay_proportion=0.0)),
    "circular buffer": replace(ALL, reuse=replace(ALL.reuse, buffer_order="ring")),
    "broadcast interval": replace(ALL, shape=replace(ALL.shape, broadcast_every=1)),
    "autoencoder": replace(ALL, network=replace(ALL.network, autoencoder_weight=0.5)),
    "slots for each queue": replace(ALL, shape=replace(ALL.shape, replays=1)),
}
"""The run without one of its parts."""


@pytest.mark.parametrize("part", WITHOUT)
def test_each_part_makes_a_difference(part: str) -> None:
    found, every = inline(WITHOUT[part]), oracle()
    assert found.version == every.version
    assert found.parameters.shape == every.parameters.shape
    assert not torch.equal(found.parameters, every.parameters)
