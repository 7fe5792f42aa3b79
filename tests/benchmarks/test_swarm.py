"""The simulation of thousands of actors, against swarms that are worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.swarm import Rollout, Simulation, Swarm, main, summary

ALONE = Swarm(
    actors=1,
    spread=0.0,
    parameters=10,
    rollout=10,
    play=2.0,
    down=10,
    up=10,
    latency=0.0,
    out=10,
    into=1e9,
    batch=1,
    learn=0.5,
    begin=0.0,
)
"""A pull takes a second, a rollout two, sending it one: it is there after 4, 8, 12 … seconds. A
version is made half a second later, when the next pull has begun: all lags but the first are 1."""

PAIR = replace(ALONE, actors=2, batch=2)
"""The second pull waits for the first: rollouts are there after 4 and 5 seconds, 8 and 9 …"""


def learned(*lags: tuple[int, int], fate: str = "learned") -> list[Rollout]:
    return [Rollout(actor, lag, fate) for actor, lag in lags]


@pytest.mark.parametrize(
    ("swarm", "seconds", "ended", "version", "sent"),
    [
        (ALONE, 8.1, learned((0, 0), (0, 1)), 1, 3.0),
        (ALONE, 12.6, learned((0, 0), (0, 1), (0, 1)), 3, 4.0),
        (replace(ALONE, latency=0.5), 5.9, learned((0, 0)), 0, 2.0),  # 0.5 + 1.5 + 2 + 1.5
        (PAIR, 5.1, learned((0, 0), (1, 0)), 0, 4.0),
        # versions at 5.5 and 9.5; the pulls of 4 and 5 seconds are answered with version 0
        (PAIR, 9.6, learned((0, 0), (1, 0), (0, 1), (1, 1)), 2, 6.0),
        # each pull is for two rollouts: 1 + 3, and the second 3 later
        (replace(ALONE, every=2), 7.1, learned((0, 0), (0, 1)), 1, 2.0),
        # a version takes 9 s, so the third rollout finds the second in the only place
        (
            replace(ALONE, learn=9.0, room=1),
            12.1,
            [*learned((0, 0)), *learned((0, 0), fate="full")],
            0,
            4.0,
        ),
        (
            replace(ALONE, oldest=0),
            8.1,
            [*learned((0, 0)), *learned((0, 1), fate="old")],
            1,
            3.0,
        ),
    ],
)
def test_swarms_worked_out_by_hand(
    swarm: Swarm, seconds: float, ended: list[Rollout], version: int, sent: float
) -> None:
    """``sent`` are the seconds for which the way out of the centre was or will be busy."""
    simulation = Simulation(swarm).run(seconds)
    assert simulation.ended == ended
    assert simulation.version == version
    assert simulation.out.busy == pytest.approx(sent)


def test_a_relay_hands_on_what_it_has_and_fetches_what_is_newer() -> None:
    """The pull at 4 s finds version 0, as the centre's; that at 8 s finds version 0 still.

    Version 1 is there at 4.5 s, and the relay learns of it from the pull at 8 s: it is there after
    a second, for the pull at 12 s. Version 2 is there at 8.5 s.
    """
    simulation = Simulation(replace(ALONE, relays=1)).run(16.1)
    assert simulation.ended == learned((0, 0), (0, 1), (0, 2), (0, 2))
    assert simulation.out.busy == 3.0  # versions 1, 2 … once each, and no pull of an actor


def test_who_leaves_loses_what_was_begun_and_comes_back() -> None:
    simulation = Simulation(replace(ALONE, actors=50, out=1e9, learn=0.0, stay=10.0, away=5.0)).run(
        400.0
    )
    fates = [one.fate for one in simulation.ended]
    # a cycle of 4 s is survived with exp(-4 / 10); of three parts of it a rollout is at stake
    assert set(fates) == {"learned", "left"}
    assert 0.2 < fates.count("left") / len(fates) < 0.4
    assert len(simulation.first) > 50
    assert min(simulation.first.values()) == pytest.approx(4.0, abs=0.01)


def test_a_summary_is_of_what_came_after_the_warm_up_and_a_seed_repeats_it() -> None:
    found = summary(ALONE, seconds=40.05, warm=8.05, seed=3)
    assert found == summary(ALONE, seconds=40.05, warm=8.05, seed=3)
    assert (found["versions_per_s"], found["rollouts_per_s"]) == (0.25, 0.25)
    assert found["lags"] == [[1, 1.0]]
    assert found["lag"] == {"5 %": 1, "median": 1, "95 %": 1, "most": 1}
    assert found["joint"][0] == {"lag": 1.0, "lost": 0.0}
    assert found["lost"] == {"left": 0.0, "full": 0.0, "old": 0.0}


def test_the_command_writes_lags_for_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lags.json"
    words: list[Any] = ["actors=20", "batch=4", "--seconds", "30", "--warm", "10", "--out", file]
    assert main([str(word) for word in words]) == 0
    assert json.loads(capsys.readouterr().out)["swarm"]["actors"] == 20
    shares = [share for _, share in json.loads(file.read_text())["lags"]]
    assert sum(shares) == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(SystemExit):
        main(["workers=3"])
