"""Processes of a run on Ray whose loss takes the whole run back to a checkpoint."""

from __future__ import annotations

import pytest

from colobus.evaluation.evaluator import evaluate
from colobus.experiment.presets import PRESETS
from helpers.launching import complete
from helpers.ray_runs import ENDLESS, IDLE, PATIENT, Begin, Run, hit, stop

pytestmark = pytest.mark.cluster


def stop_when_learned(run: Run, after: int = 0) -> None:
    """Wait until the run plays well, not only before what befell it, and stop it.

    Args:
        run: the run.
        after: steps that it must have made by then.
    """
    told = len(run.metrics())
    run.wait(lambda: run.plays_well(told) and run.metrics()[-1]["steps"] > after)
    mean = evaluate(stop(run), episodes=1000).mean
    assert mean >= 0.75  # with an error of 0.02; -0.6 is random play


@pytest.mark.parametrize(("game", "whom"), [("dba3c-catch", "server"), ("catch", "learner")])
def test_a_lost_server_or_learner_takes_all_back_to_the_newest_checkpoint(
    begin: Begin, game: str, whom: str
) -> None:
    run = begin(game, *(ENDLESS if game == "catch" else IDLE))
    for number, how in enumerate(("SIGKILL", "SIGSTOP")):
        lost = hit(run, how, whom)
        (restored,) = run.events("restored")[number:]
        assert restored["epoch"] == number + 1
        assert lost["why"]
    if game == "catch":
        run.assert_named(hit(run, "SIGKILL", "worker"))  # and a remote actor alone
        stop_when_learned(run)
    else:
        stop(run)
    assert len(run.events("lost")) == (3 if game == "catch" else 2)
    run.assert_restored(2)


def test_a_lost_replay_rolls_all_back_and_an_actor_or_learner_restarts_alone(begin: Begin) -> None:
    apart = ("--workers", 0, "--learners", 2, "--actors", 2, "--replays", 2, "--prioritized")
    run = begin("gorila-catch", *apart, *ENDLESS, *PATIENT)
    for whom in ("actor", "learner"):
        lost = hit(run, "SIGKILL", whom)
        assert lost["what"].startswith(whom)
        run.assert_named(lost)
    assert run.events("restored") == []
    assert hit(run, "SIGKILL", "replay")["kind"] == "replay"
    (restored,) = run.events("restored")
    assert restored["lost_steps"] >= 0
    assert 0 < restored["lost_experience"] <= 2 * PRESETS["gorila-catch"].replay.capacity
    kept = f"all replay buffers begin empty: they kept {restored['lost_experience']:,} steps"
    assert run.log.count(kept) == 1
    # What it had learned gets worse while the buffers hold little, and then better again.
    stop_when_learned(run, after=restored["steps"] + 6_000)
    run.assert_restored(1)


def test_what_only_answers_may_be_lost_often_while_others_work(begin: Begin) -> None:
    run = begin("catch", *IDLE, *PATIENT)
    for _ in range(7):  # what takes steps of its own may be lost five times in a row
        assert hit(run, "SIGKILL", "tracker")["kind"] == "tracker"
    # stopped before it made a step, a run would leave the checkpoint that it went on from
    run.wait(lambda: complete(run.path)[-1]["epoch"] == 7)
    assert run.interrupt()[0] == 130
    run.assert_restored(7)
