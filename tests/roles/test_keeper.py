"""What is kept for checkpoints: states of actors by round, and counts by version."""

from __future__ import annotations

from typing import Any

import numpy as np

from gelada.core.types import Origin, State
from gelada.roles.tracker.score import Exactly, Keeper, Moment, Resume
from gelada.roles.update_schedule import SampledUpdates


def state(actor: int, round: int) -> State:
    return {"round": round, "frames": np.array([actor, round])}


def hand_over(keeper: Keeper, rounds: range, actors: int = 2) -> None:
    for round in rounds:
        for actor in range(actors):
            keeper.keep(f"actor-{actor}", state(actor, round))


def rounds_of(counters: dict[str, Any]) -> list[int]:
    return [one["round"] for one in counters["play"].values()]


def test_a_checkpoint_has_the_states_of_its_version() -> None:
    keeper = Keeper(Resume(2, exactly=Exactly(Origin(1, 100, 7))), 0)
    hand_over(keeper, range(8))
    keeper.add(106, Moment(60, {"games": 3}))
    tensors, counters = keeper.saved(106)
    assert counters["origin"] == [1, 100, 7]
    assert (counters["games"], rounds_of(counters)) == (3, [6, 6])
    assert tensors["play/actor-1/frames"].tolist() == [1, 6]
    assert keeper.saved(101)[0] == {}  # too old


def test_states_of_marked_versions_are_kept_longer() -> None:
    keeper = Keeper(Resume(2, exactly=Exactly(Origin(0, 5, 0))), 10)
    hand_over(keeper, range(1, 40))
    for number in range(6, 45):
        keeper.add(number, Moment(number, {}))
    found = [number for number in range(6, 45) if keeper.saved(number)[0]]
    assert found == [30, 40, 41, 42, 43, 44]
    assert [number for number in range(6, 45) if keeper.at(number)] == [30, 40, *range(41, 45)]


def test_a_buffer_makes_several_versions_of_a_round() -> None:
    update_schedule = SampledUpdates(steps=100, minimum=250, ratio=0.5, windows=10)
    keeper = Keeper(Resume(1, exactly=Exactly(update_schedule=update_schedule)), 0)
    hand_over(keeper, range(1, 6), 1)
    found = {v: rounds_of(keeper.saved(v)[1]) for v in range(1, 10) if keeper.saved(v)[0]}
    assert found == {1: [3], 2: [3], **{number: [4] for number in range(3, 8)}, 8: [5], 9: [5]}


def test_a_version_of_many_rounds_needs_the_state_of_its_first() -> None:
    """Actors play on while the learner waits for experience, or saves the buffer."""
    update_schedule = SampledUpdates(steps=100, minimum=250, ratio=0.1, windows=100)
    assert [update_schedule.rounds(version) for version in (1, 2, 3)] == [13, 23, 33]
    keeper = Keeper(Resume(1, exactly=Exactly(update_schedule=update_schedule)), 0)
    hand_over(keeper, range(33), 1)
    assert rounds_of(keeper.saved(1)[1]) == [13]
    assert rounds_of(keeper.saved(2)[1]) == [23]
    newest = keeper.newest("actor-0")
    assert newest is not None
    assert newest["round"] == 32


def test_a_free_run_has_the_newest_states_of_all_actors() -> None:
    saved = {f"actor-{i}": state(i, 3) for i in range(2)}
    keeper = Keeper(Resume(2, saved), 0)
    assert rounds_of(keeper.saved(50)[1]) == [3, 3]
    hand_over(keeper, range(9), 1)
    assert rounds_of(keeper.saved(50)[1]) == [8, 3]
    assert keeper.newest("actor-1") is saved["actor-1"]
    assert keeper.newest("learner-0") is None
    without = Keeper(Resume(2), 0)
    hand_over(without, range(9), 1)
    assert without.saved(50) == ({}, {})  # one actor is missing
