"""Numbers that change with the steps, and the weight that follows a KL divergence."""

from __future__ import annotations

import pytest

from gelada.algorithms.api import COEFFICIENT_LIMITS, followed, linear, staircase
from gelada.algorithms.pqn import PQN


@pytest.mark.parametrize(
    ("stages", "values"),
    [
        (0, [8.0, 7.0, 6.0, 4.0, 0.02, 0.0, 0.0]),
        (1, [8.0, 8.0, 8.0, 8.0, 8.0, 0.0, 0.0]),
        (2, [8.0, 8.0, 8.0, 4.0, 4.0, 0.0, 0.0]),
        (4, [8.0, 8.0, 6.0, 4.0, 2.0, 0.0, 0.0]),
    ],
)
def test_a_staircase_is_at_the_straight_line_where_a_stage_begins(
    stages: int, values: list[float]
) -> None:
    steps = [0, 50, 100, 200, 399, 400, 9999]
    found = [staircase(8.0, 0.0, step, 400, stages) for step in steps]
    assert found == pytest.approx(values)


def test_without_steps_a_staircase_is_at_its_end_as_a_line_is() -> None:
    for stages in (0, 1, 5):
        assert staircase(3.0, 1.0, 1, 0, stages) == 1.0
    assert linear(3.0, 1.0, 0, 0) == staircase(3.0, 1.0, 0, 0, 3) == 3.0


LOW, HIGH = COEFFICIENT_LIMITS


@pytest.mark.parametrize(
    ("weight", "kl", "after"),
    [
        (1.0, 0.0201, 1.5),
        (1.0, 0.02, 1.0),  # twice the target is not above it
        (1.0, 0.01, 1.0),
        (1.0, 0.005, 1.0),
        (1.0, 0.0049, 0.5),
        (1.0, 0.0, 0.5),
        (8.0, 5.0, 12.0),
        (LOW, 0.0, LOW),
        (LOW, 1.0, 1.5 * LOW),
        (HIGH, 1.0, HIGH),
    ],
)
def test_the_weight_of_a_kl_term_as_a_table(weight: float, kl: float, after: float) -> None:
    """With a target of 0.01."""
    assert followed(weight, kl, 0.01) == pytest.approx(after)


def test_only_numbers_with_an_end_are_in_the_state_and_move() -> None:
    algorithm = PQN(gamma=0.99, lam=0.9, lam_end=0.5, lr=1.0, lr_end=0.2, anneal_steps=400)
    aux = algorithm.start()
    assert aux.keys() == {"learning_rate", "lam"}
    assert (algorithm.now(aux, "gamma"), algorithm.now(aux, "lam")) == (0.99, 0.9)
    algorithm.after(aux, {}, 100)
    assert algorithm.now(aux, "gamma") == 0.99
    assert algorithm.now(aux, "lam") == pytest.approx(0.8)
    assert algorithm.now(aux, "learning_rate") == pytest.approx(0.8)
    algorithm.after(aux, {}, 4000)
    assert algorithm.now(aux, "lam") == pytest.approx(0.5)
