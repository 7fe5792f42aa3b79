"""The machine's limit: what its stages do, and that they share nothing with roles or algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from colobus.algorithms.dqn import DQN
from colobus.cli import throughput
from colobus.cli.bench import table_of
from colobus.cli.throughput import act, emulate, learn, limit_of, stage_rates, steady_rate
from colobus.envs.api import GameSettings
from colobus.experiment.presets import PRESETS
from colobus.nets.network import NetworkSettings
from colobus.nets.torsos import Torso
from colobus.runtime.api import RoleState
from colobus.runtime.devices import CPU, Devices, Placement
from colobus.runtime.groups import Cluster
from colobus.training.callbacks import StopTraining
from colobus.training.start import begin
from conftest import reshaped, short_pong
from helpers.launching import told
from helpers.players import make_experiment
from helpers.tapes import META
from helpers.variants import with_network

EXPERIMENT = replace(short_pong(1), network=NetworkSettings(precision="float32"))
SHAPE = EXPERIMENT.shape

Looks = list[tuple[int, bool]]
"""What a network was shown: samples, and whether gradients were wanted."""
During = Callable[[Callable[[], int]], tuple[int, Looks]]


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> During:
    """Do a work; return what it counts, and the looks that it took."""
    seen: Looks = []
    forward = Torso.forward

    def noted(torso: Torso, stacks: torch.Tensor) -> torch.Tensor:
        seen.append((len(stacks), torch.is_grad_enabled()))
        return forward(torso, stacks)

    def during(work: Callable[[], int]) -> tuple[int, Looks]:
        seen.clear()
        return work(), list(seen)

    monkeypatch.setattr(Torso, "forward", noted)
    return during


@pytest.mark.slow
def test_stages_count_and_look_as_often_as_training_does(during: During) -> None:
    start = begin(EXPERIMENT)
    assert during(emulate(EXPERIMENT, start, 0)) == (16 * SHAPE.games, [])
    acting = during(act(EXPERIMENT, start, 0))
    assert acting == (16 * SHAPE.games, [(SHAPE.games, False)] * 16)
    samples, seen = during(learn(EXPERIMENT, start, 0))
    assert samples == SHAPE.datapoints == 64
    epochs, minibatches = EXPERIMENT.algorithm.epochs, 64 // EXPERIMENT.algorithm.minibatch
    values = [32, 32, 4]  # 4 windows have 68 observations
    assert seen == [*((n, False) for n in values), *([(32, True)] * epochs * minibatches)]


@pytest.mark.slow
def test_agents_with_policies_of_their_own_act() -> None:
    pair = with_network(PRESETS["catch-pair"], policies="separate")
    assert act(pair, begin(pair), 0)() == 16 * pair.shape.games


def test_what_acts_does_not_see_the_masks_of_actions() -> None:
    settings = GameSettings(game="helpers.gym_toys:doors_by_key")
    doors = make_experiment(settings, stack=1, torso="mlp")
    doors = reshaped(doors, random_steps=64)
    assert act(doors, begin(doors), 0)() == 16 * doors.shape.games


@pytest.mark.slow
def test_a_replay_is_sampled_as_often_as_the_preset_says(during: During) -> None:
    dqn, precision = PRESETS["dqn-pong"], EXPERIMENT.network
    games = replace(dqn.games, game="pong")
    dqn = replace(dqn, games=games, network=precision, shape=replace(dqn.shape, random_steps=64))
    start = begin(dqn)
    # eight windows of 32 steps for 64 steps played, after a look at 33 observations of each
    assert during(learn(dqn, start, 0)) == (64, [(8 * 33, False), (8 * 32, True)])
    one_step = replace(dqn, algorithm=DQN(n=3), replay=replace(dqn.replay, samples_per_insert=1.0))
    assert during(learn(one_step, start, 0)) == (8, [(8 * 2, False), (8, True)])


def test_stages_come_one_after_the_other_but_host_and_gpu_work_at_the_same_time() -> None:
    assert limit_of({"emulate": 2.0, "act": 4.0, "learn": 4.0}) == 1.0
    rates = {"emulate": 6.0, "act": 4.0, "learn": 4.0, "feed": 3.0}
    gpu = torch.device("cuda", 0)
    assert limit_of(rates, Placement(gpu, gpu)) == 2.0  # emulate and feed; act and learn
    assert limit_of(rates | {"feed": 30.0}, Placement(gpu, gpu)) == 2.0
    assert limit_of(rates, Placement(gpu, CPU)) == pytest.approx(4 / 3)
    assert limit_of(rates | {"emulate": 2.0}, Placement(CPU, gpu)) == pytest.approx(4 / 3)


@pytest.mark.processes
def test_stages_of_a_device_are_measured_there() -> None:
    catch = replace(PRESETS["catch"], seed=2)
    placement = Placement(META, META)
    rates = stage_rates(catch, begin(catch), 0.05, lambda _: None, placement)
    assert list(rates) == ["emulate", "feed", "act", "learn"]
    assert min(rates.values()) > 0


def test_how_long_learner_and_loader_wait() -> None:
    spent = {
        "loader-0": {"wait for experience": 3.0, "load": 1.0},
        "learner-0": {"wait for experience": 1.0, "wait for parameters": 2.0, "learn": 7.0},
        "learner-1": {},
    }
    roles = [RoleState(name, "", False, 0.0, 1, s, False, False) for name, s in spent.items()]
    shares = throughput.waiting_shares(roles)
    assert shares == {"loader_waits": 0.75, "learner_waits": 0.3, "learner_waits_for_batch": 0.1}


@pytest.mark.processes
def test_bench_measures_stages_and_the_share_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages run in a process of their own, here in one instead of one for each core."""
    monkeypatch.setattr("colobus.cli.throughput.usable_cores", lambda: 1)
    rates = told("bench", "catch", "--seconds", 6)
    stages = [name for name in rates if name.endswith(("_samples_per_s", "_steps_per_s"))]
    assert stages[:3] == ["emulate_steps_per_s", "act_samples_per_s", "learn_samples_per_s"]
    assert min(rates[name] for name in stages[:3]) > 0
    assert rates["limit_steps_per_s"] > 0
    assert 0 <= rates["learner_waits_for_batch"] <= rates["learner_waits"] <= 1
    assert "loader_waits" not in rates
    share = rates["share_of_limit"]
    achieved = rates["achieved_steps_per_s"]
    assert share == pytest.approx(achieved / rates["limit_steps_per_s"], abs=1e-3)
    table = table_of(rates)
    assert table.title.startswith(f"catch on {rates['machine']['cores']} cores (")
    assert table.rows[0] == ("emulate, all cores", f"{rates['emulate_steps_per_s']:,.0f}")
    assert ("share of the limit", f"{100 * share:.0f} %") in table.rows


@pytest.mark.parametrize(
    ("name", "cluster", "devices"),
    [
        ("auto", Cluster(), ("cpu", "cpu")),
        ("cuda", Cluster(), ("cuda:0", "cpu")),
        ("auto", None, ("cuda:0", "cuda:0")),
    ],
)
def test_the_limit_is_that_of_the_devices_of_its_training(
    name: str, cluster: Cluster | None, devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with a GPU: on Ray actors have none, and auto is the CPU."""
    prepare = Mock(side_effect=StopTraining)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: True)
    for done in ("open_games", "begin"):
        monkeypatch.setattr(f"colobus.cli.throughput.{done}", lambda *_: None)
    monkeypatch.setattr("colobus.cli.throughput.prepare", prepare)
    with pytest.raises(StopTraining):
        throughput.bench(EXPERIMENT, 1.0, lambda _: None, cluster, Devices(name))
    used: Placement = prepare.call_args.args[0]
    assert (str(used.learn), str(used.act)) == devices


def test_a_training_is_measured_from_its_first_version_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of Ray that took a minute to begin left nothing of the time that was asked for."""

    def begins_late(*_: Any, watch: Callable[..., None], **__: Any) -> SimpleNamespace:
        for second in range(500):
            version = max(second - 60, 0)
            steps = 4096 + 10 * version  # it begins with random ones
            status = SimpleNamespace(seconds=float(second), steps=steps, version=version)
            try:
                watch(status, [])
            except StopTraining:
                return SimpleNamespace(status=status, interrupted=False)
        raise AssertionError("it was not ended")

    monkeypatch.setattr("colobus.cli.throughput.train", begins_late)
    counts, _ = throughput.trained(EXPERIMENT, 20.0, None, None, lambda _: None)
    assert (counts[0], counts[-1]) == ((61.0, 4106), (81.0, 4306))
    assert steady_rate(counts) == 10.0
    assert steady_rate([(2.0, 100), (4.0, 900), (6.0, 1300)]) == 200.0  # without its first part
    assert steady_rate([(1.0, 0), (2.0, 0)]) == 0.0
