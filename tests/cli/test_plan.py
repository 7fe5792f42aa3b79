"""``colobus plan``, with costs that are known, and ``colobus bench --costs``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from colobus.cli.costs import FACTORS, alone, calls_of
from colobus.cli.plan import bounds_of, plan, tried
from colobus.core.errors import ColobusError
from colobus.experiment.check import check
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.runtime.groups import Hosts
from colobus.training.on_virtual import Costs, measured_with, read_costs
from conftest import reshaped
from helpers.launching import colobus, printed, refused, told

CATCH = PRESETS["dba3c-catch"]

LEARN, ACT, EMULATE = 0.02, 1e-4, 2e-4
"""Seconds of a batch, of a stage of acting (19 in a rollout of 9 steps), and of a step."""


def point(games: int, repetition: int = 0, **stages: float) -> dict[str, Any]:
    """Return the seconds of stages with so many games; they are given for 8."""
    factor = games / 8 * (1.0 + 0.1 * repetition)
    seconds = {"learn": LEARN, "act": ACT, "emulate": EMULATE} | stages
    sizes = {"repetition": repetition, "games": games, "datapoints": 9 * games}
    return sizes | {"stages": {name: [factor * s] * 3 for name, s in seconds.items()}}


def costs_of(**stages: float) -> dict[str, Any]:
    """Return costs of two repetitions, of which the second is a tenth slower."""
    return {
        "about": measured_with(CATCH),
        "machine": {"processor": "one that is known"},
        "points": [point(games, r, **stages) for r in (0, 1) for games in (4, 8, 16)],
        "servers": [{"step": 0.0, "take a gradient": 0.0}] * 2,
        "calls": [{"loop": 0.0, "latency": 0.0, "byte": 0.0}] * 2,
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(costs_of()))
    return path


def planned(*words: object) -> Any:
    """Return what a plan of dba3c-catch says."""
    return told("plan", "dba3c-catch", *words)


@pytest.mark.slow
def test_what_bounds_a_run_by_hand(file: Path) -> None:
    """Learning takes 20 ms for 8 games x 9 steps; playing beside it 9 x 0.2 + 19 x 0.1 = 3.7 ms."""
    found = planned("--nodes", 4, "--costs", file)
    assert (found["workers"], found["bound_by"]) == (4, "learners' rounds")
    assert "cores" not in found.keys() | found["bounds"].keys()  # there is no limit
    assert found["versions"] == pytest.approx([1 / 0.021, 1 / 0.022, 1 / 0.02], rel=0.02)
    assert found["steps"][2] == pytest.approx(4 * 72 / 0.02, rel=0.02)
    assert found["bounds"]["learners' rounds"] == pytest.approx(4 * 72 / 0.021, rel=0.01)
    assert found["bounds"]["play"] == pytest.approx(4 * 72 / (1.05 * 0.0037), rel=0.001)
    assert found["lag"] == [1.0] * 3
    assert found["changes"]["--servers 4"] == pytest.approx(0.0, abs=0.05)
    assert found["changes"]["--quorum 3"] == pytest.approx(-0.25, abs=0.05)  # a quarter is dropped
    found = planned("--nodes", 4, "--quorum", 3, "--no-changes", "--costs", file)
    assert found["dropped"][0] == pytest.approx(0.25, abs=0.05)


def test_costs_are_said_by_hand() -> None:
    """A rollout of 8 games takes 9 x 0.2 ms, and its batch 50 ms to learn from."""
    found = planned("--nodes", 2, "--no-changes", "--costs", "learn=50ms,emulate=200us")
    assert found["bound_by"] == "learners' rounds"
    assert found["machine"]["processor"] == "no machine (said by hand)"
    assert found["steps"] == pytest.approx([2 * 72 / 0.05] * 3, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "actors"), [((), 4), (("--actors", 3), 3)])
def test_a_run_without_workers_has_the_actors_that_cores_give_it(
    words: tuple[object, ...], actors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout of an actor of 8 games takes 128 x 1 ms; each plays for itself."""
    monkeypatch.setattr("colobus.cli.experiment_flags.usable_cores", lambda: 2)
    costs = ("--costs", "emulate=1ms,learn=1ms", "--no-changes")
    found = told("plan", "pong", "--nodes", 4, "--cores", 12, *words, *costs)
    assert found["bounds"]["play"] == pytest.approx(actors * 8 / 0.001, rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(("actors", "steps"), [(32, 32 * 250 / 0.665), (128, 1000 / 0.0328)])
def test_many_actors_of_one_learner_are_not_in_step(actors: int, steps: float) -> None:
    """Each makes 5 games x 50 steps in 50 x 13.3 ms; a batch of 1,000 takes 32.8 ms to load."""
    words = ("--actors", actors, "--games", 5, "--length", 50, "--batch", 1000, "--loaders", 1)
    costs = ("--costs", "emulate=13.3ms,learn=26.9ms,load=32.8ms")
    found = told("plan", "appo-pong", *words, *costs, "--nodes", 5, "--cores", 64, "--no-changes")
    assert found["steps"] == pytest.approx([steps] * 3, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("game", "loaded"), [("ppo-pong", 0.09), ("helpers.gym_toys:wide", 0.01)])
def test_trajectories_are_as_large_as_real_ones(game: str, loaded: float) -> None:
    """10,240 steps are 1.28 s of play; then 18.9 MB of an actor apart cross to the learner's host.

    The parameters that it plays with are 0.9 and 0.1 MB.
    """
    costs = ("--costs", "emulate=1ms,learn=1ms", "--no-changes", "--link", "10MB")
    found = told("plan", game, "--actors", 2, "--length", 1280, "--nodes", 2, *costs)
    assert found["steps"] == pytest.approx([8000 + 10240 / (1.28 + 1.89 + loaded)] * 3, rel=0.05)


@pytest.mark.slow
def test_threads_that_share_a_core_and_slow_links_are_what_bounds(file: Path) -> None:
    words = ("--costs", file, "--no-changes", "--nodes")
    found = planned(*words, 4, "--cores", 1)
    assert found["bound_by"] == "cores"
    assert found["versions"][0] == pytest.approx(1 / (1.05 * 0.0237), rel=0.03)
    found = planned(*words, 4, "--cores", 12)
    assert found["bounds"]["play"] == pytest.approx(10 * 4 * 72 / (1.05 * 0.0037), rel=0.001)
    found = planned(*words, 8, "--link", "1MB")
    assert found["bound_by"] == "servers' links"
    bounds, servers = found["bounds"], found["servers"]
    assert found["steps"][0] / bounds["servers' links"] == pytest.approx(0.49, rel=0.05)
    # of a slice, in seconds; those of the worker beside a server do not cross its link
    wire = 8 * 72 / bounds["servers' links"] / 7
    # gradients go to all servers but one, and the last of them answers
    assert bounds["learners' rounds"] == pytest.approx(8 * 72 / (0.021 + servers * wire), rel=0.01)


@pytest.mark.slow
def test_what_stays_on_a_host_crosses_no_link(file: Path) -> None:
    words = ("--costs", file, "--no-changes", "--link", "100kB", "--workers", 4)
    found = planned(*words, "--nodes", 1)
    assert found["bound_by"] == "learners' rounds"
    assert found["bounds"]["workers' links"] > 1e9
    bounds = planned(*words, "--nodes", 2, "--servers", 1)["bounds"]
    assert bounds["workers' links"] == bounds["servers' links"]  # two workers are beside the server


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["--asynchronous", "--quorum 12", "--quorum 0"])
def test_servers_that_bound_a_run_are_not_faster_simulated(file: Path, flags: str) -> None:
    servers = [{"step": 2e-6, "take a gradient": 1e-6}] * 2
    file.write_text(json.dumps(costs_of(learn=1e-4) | {"servers": servers}))
    words = ("--nodes", 16, *flags.split(), "--costs", file, "--no-changes", "--servers", 1)
    found = planned(*words)
    assert found["bound_by"] == "servers' steps"
    assert 0.8 < found["steps"][0] / found["bounds"]["servers' steps"] < 1.02  # of a short time


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "bound"),
    [
        *(("step", "servers' steps"), ("take a gradient", "servers' steps")),
        *(("push", "learners' rounds"), ("wait for parameters", "learners' rounds")),
        *(("load parameters", "play"), ("wait for room", "play")),
    ],
)
def test_a_bound_has_all_stages_of_its_part(stage: str, bound: str) -> None:
    """Two workers learn 2 x 72 steps for each tenth of a second of the stage that is slow."""
    costs = f"learn=1ms,emulate=1us,{stage}=100ms"
    found = planned("--nodes", 2, "--no-changes", "--costs", costs)
    assert found["bound_by"] == bound
    assert found["bounds"][bound] == pytest.approx(1440, rel=0.02)
    assert found["steps"][0] == pytest.approx(1440, rel=0.02)


def test_what_is_no_run_or_no_change_is_not_tried() -> None:
    assert "--servers 64" not in tried(reshaped(CATCH, servers=32))  # the network is too small
    assert "--quorum 15" in tried(reshaped(CATCH, workers=16))
    for quorum in (15, 12):
        assert "--quorum 15" not in tried(reshaped(CATCH, workers=16, quorum=quorum))


@pytest.mark.parametrize("name", [name for name, e in PRESETS.items() if e.replay.capacity])
def test_a_worker_alone_is_a_run(name: str) -> None:
    """Else the measurement of its costs ends in the middle."""
    for factor in FACTORS:
        check(alone(PRESETS[name], factor))


@pytest.mark.slow
def test_costs_lie_on_a_line_between_and_beyond_the_sizes() -> None:
    costs = Costs(**costs_of())
    assert costs.mean("emulate", 8, 0) == pytest.approx(EMULATE)
    assert costs.mean("emulate", 12, 1) == pytest.approx(1.5 * 1.1 * EMULATE)
    assert costs.mean("learn", 576, 0) == pytest.approx(8 * LEARN)
    assert costs.mean("report", 72) == 0.0  # was not measured
    found = plan(CATCH, costs, Hosts(hosts=1), changes=False)
    assert found["workers"] == 2
    assert found["changes"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dba3c-catch"], "no machine was measured yet; measure it: .*bench dba3c-catch --costs"),
        (["dba3c-catch", "--costs", "none.json"], "none.json: No such file.*; measure it: "),
        (["dba3c-pong", "--costs", "FILE"], "measured with game catch, here it is pong; measure"),
        (["dba3c-catch", "--cores", "0"], "--cores 0: must be a whole number"),
        (["dba3c-catch", "--cores", "10000"], "--cores 10000: must be a whole number from 1 to 99"),
        (["dba3c-catch", "--nodes", "4", "--quorum", "4"], "no machine was measured yet"),
        (["dba3c-catch", "--nodes", "2000"], "--nodes 2000: must be at most 1,024 without --wor"),
        (["dba3c-catch", "--nodes", "4", "--quorum", "5"], "quorum 5 with 4 learner"),
        (["dba3c-catch", "--workers=3", "--quorum=4"], "quorum 4 with 3 learner"),
        (["dba3c-breakout-paper", "--workers", "4", "--quorum", "3"], "no machine was measured"),
        (["dba3c-catch", "--link", "fast"], "--link fast: must be such as 10Gb"),
        (["dba3c-catch", "--nodes", "0"], "--nodes 0: "),
        (["dba3c-catch", "--link", "9" * 400 + "Gb"], "9999: must be such as 10Gb"),
        (["dba3c-catch", "--costs", "lern=27ms"], "--costs lern=27ms: unknown stage; .*: learn"),
        (["dba3c-catch", "--costs", "act=1s,act=2s"], "act=2s: act is given twice; leave one"),
        (["dqn-pong"], "colobus plan: knows runs whose learners take each trajectory once"),
        (["catch-pair"], "not replay buffers, --reduce group and games of several agents"),
    ],
)
def test_what_cannot_be_planned_is_one_line(words: list[str], said: str, file: Path) -> None:
    assert re.search(said, refused("plan", *(file if word == "FILE" else word for word in words)))


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ("learn=5ms", "--costs: say what emulate takes, too: add emulate=1ms"),
        ("emulate=5ms", "--costs: say what learn takes, too: add learn=1ms"),
        ("learn=9999s,emulate=1ms", "--link 10Gb with --costs learn=9999s,.* 600 s.*; take a fa"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(costs: str, said: str) -> None:
    words = ("--nodes", 2, "--no-changes", "--costs", costs)
    code, _, err = colobus("plan", "dba3c-catch", *words)
    assert code == 2
    assert re.fullmatch(f"colobus: {said}.*\n", err)


GOOD = costs_of()


def first(**changes: Any) -> dict[str, Any]:
    """Return points of which the first is not as it should be."""
    one, *more = GOOD["points"]
    return {"points": [one | changes, *more]}


TIMES = [[nan, 1.0], [1.0, inf], [-1.0, 1.0], [1.0], []]
SECONDS = "must be two or more finite seconds, from 0 on"
COUNTED = "'repetition' must be counted from 0 on"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({name: [1]}, "no costs of a machine") for name in GOOD),
        ({"points": []}, f"'points' {SECONDS}"),
        (first(stages={}), f"'stages' {SECONDS}"),
        *((first(stages={"one": [1.0, 1.0], "act": t}), f"'act' {SECONDS}") for t in TIMES),
        *((first(repetition=number), COUNTED) for number in (-1, 10**9, 0.5)),
        ({"servers": [*GOOD["servers"], {"step": -1.0}]}, f"'step' {SECONDS}"),
        ({"calls": [*GOOD["calls"], {"loop": -1.0}]}, f"'loop' {SECONDS}"),
    ],
)
def test_a_file_of_something_else_is_no_costs(changes: Any, said: str, file: Path) -> None:
    file.write_text(json.dumps(costs_of() | changes))
    for words in ("plan dba3c-catch", "train dba3c-catch --on virtual"):
        assert f"--costs {file}: {said}; measure it: " in refused(*words.split(), "--costs", file)


def test_costs_are_of_games_and_batches_that_cost_as_much(file: Path) -> None:
    def refusal(experiment: Experiment) -> str:
        with pytest.raises(ColobusError) as caught:
            read_costs(str(file), experiment, "dba3c-catch")
        return str(caught.value).partition(": ")[2].partition(";")[0]

    size = CATCH.games.size
    larger = replace(CATCH, games=replace(CATCH.games, size=2 * size))
    assert refusal(larger) == f"measured with size {size}, here it is {2 * size}"
    several = reshaped(CATCH, emulators=4)
    assert refusal(several) == "measured with emulators 1, here it is 4"
    mixed = replace(CATCH, reuse=replace(CATCH.reuse, replay_proportion=16.0))
    assert refusal(mixed) == "measured with replay_proportion 0.0, here it is 16.0"
    older = {name: value for name, value in measured_with(CATCH).items() if name != "size"}
    file.write_text(json.dumps(costs_of() | {"about": older}))
    assert read_costs(str(file), larger, "dba3c-catch").about == older
    file.write_text(json.dumps(costs_of() | {"about": {}}))
    assert refusal(CATCH) == "measured with game None, here it is catch"


def test_what_a_call_costs_is_as_long_as_a_round_trip_by_hand() -> None:
    """The loop takes 1 ms a call and 2 ms are left; work is 0.5 ms here and 1 ms there."""
    own = {"byte": 1e-9, "stored": 1e-3, "carried": 2e-9, "cpu": 5e-4, "idle": 0.01}
    expected = {"loop": 1e-3, "latency": 7.5e-4} | own
    assert calls_of((1, 2, 4), [3e-3, 4e-3, 6e-3], own) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("words", "then"),
    [
        ("", "plan pong --costs 'a b.json' --nodes 4"),
        ("dba3c-catch --games 4 --seconds 9", "plan dba3c-catch --games 4 --costs 'a b.json' --no"),
        ("a3c-pong --env qbert --on threads", "plan a3c-pong --env qbert --costs 'a b.json' "),
        ("dqn-catch", "train dqn-catch --costs 'a b.json' --on virtual)"),
        ("catch-pair", "train catch-pair --costs 'a b.json' --on virtual)"),
    ],
)
def test_the_next_command_has_the_costs_that_were_measured(
    words: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.cli.bench.measure_costs", lambda *_: {})
    said = printed("bench", *words.split(), "--costs", "a b.json")
    assert f" {then}" in said.replace("\n", " ")


@pytest.mark.cluster
def test_costs_are_measured_for_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    printed("bench", "dba3c-catch", "--costs", file, "--seconds", 6)
    costs = read_costs(str(file), CATCH, "dba3c-catch")
    assert costs.repetitions == 5
    for stage in ("act", "emulate", "learn", "wait for experience", "between stages"):
        assert costs.mean(stage, 72) > 0.0, stage
    assert all("learn" in point["stages"] for point in costs.points)
    for one in costs.calls:  # any of them may be 0 on a busy machine, but not all
        assert min(one.values()) >= 0.0 < one["loop"] + one["latency"] + one["cpu"]
        assert {"byte", "stored", "carried"} <= one.keys()
    assert all(one["step"] > 0.0 for one in costs.servers)
    assert planned("--nodes", 2, "--costs", file, "--no-changes")["steps"][1] > 0.0


def test_each_minibatch_is_a_step_of_the_servers_beside_a_learner() -> None:
    """Catch has 3 epochs of 2 minibatches over 512 steps, so six steps of 100 ms a round."""
    costs = ("--costs", "learn=1ms,emulate=1us,step=100ms", "--no-changes")
    found = told("plan", "catch", *costs)
    assert found["bounds"]["learners' rounds"] == pytest.approx(512 / 0.601, rel=0.01)
    assert found["steps"][0] == pytest.approx(found["bounds"]["learners' rounds"], rel=0.01)


@pytest.mark.slow
def test_trajectories_of_actors_elsewhere_cross_the_link_of_the_learner() -> None:
    """Each has 128 frames of 42 x 42 a game, and the 4 of the stack before; one host is its own."""
    words = ("--actors", 16, "--games", 2, "--width", 16, "--nodes", 16, "--link", "10MB")
    found = told("plan", "pong", *words, "--no-changes", "--costs", "emulate=2ms,learn=1ms")
    step = 42 * 42 * 132 / 128 * 15 / 16
    assert found["bounds"]["the learner's link"] == pytest.approx(10e6 / step, rel=0.001)
    assert found["bound_by"] == "the learner's link"
    # an actor sends before it plays on, and the one beside the learner crosses no link
    assert 0.6 < found["steps"][0] / found["bounds"]["the learner's link"] < 1.1


def test_loading_parameters_costs_what_it_costs_so_many_games() -> None:
    costs = [Costs(**costs_of(**{"load parameters": load})) for load in (0.0, 1e-3)]
    without, with_it = (bounds_of(CATCH, one, Hosts(hosts=2))["play"] for one in costs)
    assert without / with_it == pytest.approx(4.7 / 3.7)
