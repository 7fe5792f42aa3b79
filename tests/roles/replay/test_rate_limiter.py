"""Samples per insert under random schedules: it never locks up, and the ratio is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colobus.roles.replay.sampling import SamplesPerInsert


@pytest.mark.parametrize(
    ("added", "sampled", "may_add", "may_sample"),
    [
        (99, 0, True, False),  # below the minimum
        (100, 0, True, True),  # surplus 0
        (100, 12, True, True),  # -12: the batch makes it -20
        (100, 13, True, False),  # -13
        (105, 0, True, True),  # 10: the trajectory makes it 20
        (106, 0, False, True),  # 12
        (1_000, 1_794, True, True),
        (1_000, 1_812, True, True),
        (1_000, 1_813, True, False),
        (1_000, 1_789, False, True),
    ],
)
def test_the_rule_as_a_table(added: int, sampled: int, may_add: bool, may_sample: bool) -> None:
    limiter = SamplesPerInsert(2.0, minimum=100, tolerance=20, trajectory=5, batch=8)
    limiter.added, limiter.sampled = added, sampled
    assert (limiter.may_add(), limiter.may_sample()) == (may_add, may_sample)


class Scheduled(SamplesPerInsert):
    """A limiter, and how many actors it has let in that have not added yet."""

    playing = 0


def go_on(
    limiter: Scheduled, sizes: tuple[int, int, int], pull: float, rng: np.random.Generator
) -> None:
    """Let one actor or learner go on, whoever can, drawn at random; fail if nobody can.

    An actor that was let in plays for a while before it adds; others are let in meanwhile.
    """
    actors, trajectory, batch = sizes
    playing = limiter.playing
    can = np.array([playing < actors and limiter.may_add(), playing > 0, limiter.may_sample()])
    assert can.any(), "nobody can go on"
    likes = np.array([pull, pull, 1 - pull]) * can
    what = int(rng.choice(3, p=likes / likes.sum()))
    if what == 0:
        limiter.playing += 1
    elif what == 1:
        limiter.playing -= 1
        limiter.added += trajectory
    else:
        limiter.sampled += batch


@pytest.mark.slow
@settings(max_examples=100)
@given(
    ratio=st.sampled_from([0.03125, 0.25, 1.0, 3.7, 8.0, 32.0]),
    trajectory=st.sampled_from([1, 20, 128, 1024]),
    batch=st.sampled_from([1, 32, 512]),
    slack=st.sampled_from([1.0, 1.5, 4.0]),
    actors=st.integers(1, 5),
    pull=st.floats(0.02, 0.98),
    seed=st.integers(0, 9),
)
def test_random_schedules_never_lock_up_and_keep_to_the_tolerance(
    ratio: float, trajectory: int, batch: int, slack: float, actors: int, pull: float, seed: int
) -> None:
    tolerance = slack * max(ratio * trajectory, batch)
    limiter = Scheduled(ratio, 500, tolerance, trajectory, batch)
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        go_on(limiter, (actors, trajectory, batch), pull, rng)
        if limiter.added >= 500:
            assert -tolerance <= limiter.surplus <= tolerance + ratio * trajectory * actors
