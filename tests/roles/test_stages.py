"""Shares of time by stage: between two lines, for each kind of role."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gelada.roles.tracker.tracker import StageShares


def test_shares_are_those_since_the_last_line_and_of_all_roles_of_a_kind() -> None:
    shares = StageShares()
    assert shares.values() == {}
    shares.take({"actor-0": {"act": 1.0, "emulate": 3.0}, "actor-1": {"act": 0.0, "emulate": 4.0}})
    assert shares.values() == {"time_actor_act": 0.125, "time_actor_emulate": 0.875}
    shares.take(
        {
            "actor-0": {"act": 3.0, "emulate": 3.0},
            "actor-1": {"act": 1.0, "emulate": 5.0},
            "learner-0": {"learn": 1.0, "wait for experience": 3.0},
        }
    )
    assert shares.values() == {
        "time_actor_act": 0.75,
        "time_actor_emulate": 0.25,
        "time_learner_learn": 0.25,
        "time_learner_wait_for_experience": 0.75,
    }


def test_a_role_that_began_again_counts_anew_and_silence_keeps_the_shares() -> None:
    shares = StageShares()
    shares.take({"actor-0": {"act": 10.0, "emulate": 10.0}})
    shares.values()
    shares.take({"actor-0": {"act": 1.0, "emulate": 13.0}})
    again = shares.values()
    assert again == {"time_actor_act": 0.25, "time_actor_emulate": 0.75}
    assert shares.values() == again
    shares.take({"actor-0": {"act": 1.0, "emulate": 13.0}})
    assert shares.values() == again


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_run_writes_them_unless_it_is_deterministic(tmp_path: Path, deterministic: bool) -> None:
    from conftest import catch
    from gelada.training.run import train

    experiment = catch(10_000_000 if not deterministic else 12_000, deterministic=deterministic)
    folder = tmp_path / "run"
    looked = 0

    def watch(*_: object) -> None:
        nonlocal looked
        looked += 1
        if looked > 5 and not deterministic:
            raise KeyboardInterrupt

    train(experiment, folder, watch=watch, log=lambda _: None)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = {name for row in rows for name in row if name.startswith("time_")}
    if deterministic:
        assert timed == set()
        return
    assert {"time_actor_act", "time_actor_emulate", "time_learner_learn"} <= timed
    for kind in ("actor", "learner"):
        shares = [v for name, v in rows[-1].items() if name.startswith(f"time_{kind}_")]
        assert sum(shares) == pytest.approx(1.0, abs=0.01)
