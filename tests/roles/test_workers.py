"""A worker's learner: pulls, pushes, what it tells, and what it does after an error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.a3c import A3C
from colobus.core.errors import Deadline
from colobus.core.files import read_lines
from colobus.core.types import Gradient, Origin, Params, State, Traffic, Update, Version
from colobus.experiment.presets import PRESETS
from colobus.ops.flat import FlatParameters
from colobus.roles.backprop import Backprop
from colobus.roles.learner import Learner
from colobus.roles.parameters.client import RemoteClient
from colobus.roles.parameters.published import PublishedParameters
from colobus.roles.parameters.server import Admission, ParameterServer
from colobus.roles.replay.queue import Fifo, TrajectoryQueue
from colobus.roles.schedule import Schedule, SharedSchedule, annealed
from colobus.roles.tracker import ResumePoint, StopRule
from colobus.roles.tracker.score import Exactly, Keeper, Moment, Resume
from colobus.roles.update_schedule import UpdateSchedule
from colobus.training.run import Run
from colobus.training.runtimes import Launcher, Plan
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, make_net, random_trajectory, reshaped, stand_in
from helpers.servers import Recording, Reports, servers_of

START = Version(0, 3)
ALGORITHM = A3C(lr=1e-2, lr_end=2e-3, anneal_steps=400)


class Scene:
    """Two servers and learner 0 of two workers, with trajectories of noise."""

    def __init__(self, admission: Admission, **more: Any) -> None:
        self.log = stand_in(Reports())
        flat = FlatParameters(make_net())
        self.size = flat.layout.size
        self.servers = servers_of(flat, 2, admission=admission, version=START, kind=Recording)
        for server in self.servers:
            server.pushed = self.log.events
        self.replay = TrajectoryQueue(Fifo(2), capacity=9, patience=0.0)
        self.cache = PublishedParameters(Params(START, flat.values.clone()), kept=9, patience=0.0)
        client = RemoteClient(0, flat, self.servers, START, cache=self.cache, **more)
        compute, started = Backprop(ALGORITHM, 0, 5), ALGORITHM.start()
        schedule = SharedSchedule(ALGORITHM, started, 100, first=START, learners=2)
        self.learner = Learner(0, ALGORITHM, client, compute, schedule, self.replay, self.log)
        self.fed = 0

    def step(self, *others: int) -> None:
        """Let the learner learn from a new trajectory; then push for another to these servers."""
        self.feed()
        self.learner.step()
        self.push_for_another(*others)

    def feed(self) -> None:
        rng = np.random.default_rng(self.fed)
        self.replay.add(random_trajectory(rng, round=self.fed, number=2))
        self.fed += 1

    def push_for_another(self, *servers: int) -> None:
        for server in (self.servers[index] for index in servers):
            version, values = server.pull()
            ParameterServer.push(server, Gradient(1, version, 0, 1, 8, 1e-2, values))

    def vector(self) -> torch.Tensor:
        return torch.cat([server.pull().values for server in self.servers])


def test_a_batch_is_one_gradient_reported_before_it_is_pushed() -> None:
    scene = Scene(Admission(2))
    scene.step(0, 1)
    told, one, two = scene.log.events
    counted = int(random_trajectory(np.random.default_rng(0)).mask.sum())
    assert told.version == Version(0, 4)
    assert told.steps == 10
    assert told.lag == (1.0, 1.0, 1.0)
    assert told.traffic == Traffic(moved=4 * scene.size)  # it has only pulled so far
    for gradient, server in [(one, scene.servers[0]), (two, scene.servers[1])]:
        assert gradient[:5] == (0, START, 0, 1, counted)
        assert gradient.values.numel() == server.pull().values.numel()
        assert server.pull().version == Version(0, 4)
    scene.step()
    assert scene.log.updates[1].traffic == Traffic(counted=1, moved=3 * 4 * scene.size)


def test_the_cache_gets_every_version_that_is_pulled() -> None:
    scene = Scene(Admission(2))
    for number in (3, 4, 5):
        scene.step()
        assert scene.cache.newest.version == Version(0, number)
        assert torch.equal(scene.cache.newest.values, scene.vector())
        assert torch.equal(scene.learner.client.flat.values, scene.vector())
        scene.push_for_another(0, 1)
    assert scene.cache.pull(START, exactly=True).version == START


def test_it_waits_for_the_next_version_and_says_whose_gradients_are_there() -> None:
    scene = Scene(Admission(2))
    there = "a step takes 2 gradients, there are: "
    with pytest.raises(Deadline, match=f"{there}none$"):
        scene.servers[0].pull(Version(0, 4))
    scene.step()
    scene.feed()
    message = "^server: no parameters of version 4 for 0 s; the newest are 3; "
    with pytest.raises(Deadline, match=f"{message}{there}learner-0$"):
        scene.learner.step()
    assert scene.replay.depth == 1  # no batch was taken


def test_what_became_of_its_gradients_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(Admission(1))
    sample = scene.replay.sample

    def others_are_faster(*who: int) -> Any:
        scene.push_for_another(*who)
        return sample()

    for who in [(), (0, 1), (0,), (1,), ()]:  # servers at which somebody else was first
        monkeypatch.setattr(scene.replay, "sample", partial(others_are_faster, *who))
        scene.step()
    traffic = [update.traffic._replace(moved=0) for update in scene.log.updates]
    assert traffic == [
        Traffic(), Traffic(counted=1), Traffic(counted=1, dropped=1),
        Traffic(counted=1, dropped=1, partial=1), Traffic(counted=1, dropped=1, partial=2),
    ]  # fmt: skip


def test_an_asynchronous_learner_pushes_each_slice_with_its_own_version() -> None:
    scene = Scene(Admission(1, 5), asynchronous=True)
    scene.push_for_another(1, 1)
    scene.step()
    told, one, two = scene.log.events
    assert told.version == Version(0, 6)
    assert (one.version, two.version) == (Version(0, 3), Version(0, 5))
    assert [s.pull().version.number for s in scene.servers] == [4, 6]
    assert scene.cache.newest.version == Version(0, 5)
    scene.step()  # it never waits
    assert [s.pull().version.number for s in scene.servers] == [5, 7]


@pytest.mark.parametrize(
    ("share", "stop", "seconds", "want"),
    [
        (0.0, StopRule(steps=1000), 0.0, 0.5),  # 200 of 400 steps
        (0.8, StopRule(steps=1000), 0.0, 0.25),  # 200 of 800
        (0.5, StopRule(minutes=2), 15.0, 0.25),  # a quarter of a minute
        (0.5, StopRule(steps=1000, minutes=2), 30.0, 0.5),  # what is over sooner
        (0.5, StopRule(minutes=2), 119.0, 1.0),
        (0.8, StopRule(until_score=9.0), 119.0, 0.5),  # without a budget by steps
    ],
)
def test_schedules_may_end_with_the_budget(
    share: float, stop: StopRule, seconds: float, want: float, now: list[float]
) -> None:
    algorithm = replace(ALGORITHM, anneal_share=share)
    moved = Schedule(algorithm, algorithm.start(), 190, stop)
    moved.begin(ResumePoint(0, 190, seconds=seconds - 5.0))  # of a resumed run
    now[0] += 5.0
    moved.after(stand_in(SimpleNamespace(fresh=torch.tensor(10))), {})
    rate = float(moved.algorithm_state["learning_rate"])
    assert rate == pytest.approx(1e-2 - 8e-3 * want)


def test_without_steps_to_stretch_a_share_does_nothing() -> None:
    algorithm = replace(ALGORITHM, anneal_share=1.0, anneal_steps=0)
    assert annealed(algorithm, StopRule(steps=1000), 900, 0.0) == 900


def test_budgets_of_runs_that_must_be_alike_follow_no_clock() -> None:
    base = replace(PRESETS["catch"], stop=StopRule(steps=9, minutes=1.0))
    assert base.budget == base.stop
    assert replace(base, deterministic=True).budget == StopRule(steps=9)
    assert reshaped(base, learners=2, reduce="group").budget == StopRule(steps=9)


@pytest.mark.parametrize("changes", [{"quorum": 1}, {"asynchronous": True}, {"quorum": 2}])
def test_schedules_count_batches_whose_gradients_are_dropped(changes: dict[str, Any]) -> None:
    """Else they would come as far as the versions, which one of two batches makes."""
    algorithm = replace(ALGORITHM, lr=1.0, lr_end=0.0, anneal_steps=1000)
    base = replace(PRESETS["dba3c-catch"], algorithm=algorithm)
    experiment = reshaped(base, workers=2, **changes)
    roles = make_graph(experiment, begin(experiment), None, patience=0.0).build()
    learner, tracker = roles["learner-0"], roles["tracker"]
    told = [tracker.begin("learner-0").steps]
    learner.schedule.begin(ResumePoint(0, told[0]))
    for steps in (100, 200):  # of a batch of the other, whose gradient is dropped
        _, now = tracker.report(Update(1, Version(0, 0), steps, (0.0, 0.0, 0.0), {}))
        learner.schedule.hear(now)
        told.append(now - told[0])
        learner.schedule.before(stand_in(SimpleNamespace(actions=torch.zeros(4))), Version(0, 0))
    counted = 0 if changes.get("quorum") == 2 else 300  # each version tells of all batches then
    assert told[1:] == [100, 300]
    rate = float(learner.schedule.algorithm_state["learning_rate"])
    assert rate == pytest.approx(1.0 - (told[0] + counted) / 1000)


def test_schedules_count_no_batches_of_workers_that_are_lost() -> None:
    """With --shrink three of four make a version; each of them has 10 steps."""
    first, played = Version(0, 5), 100
    schedule = SharedSchedule(ALGORITHM, ALGORITHM.start(), played, first=first, learners=4)
    batch = stand_in(SimpleNamespace(actions=torch.zeros(10)))
    for version in range(60):
        schedule.before(batch, Version(0, 5 + version))
        assert 0 <= schedule.steps - played <= 40  # a round ahead at most
        played += 30 if version < 30 else 40  # it comes back
        schedule.hear(played)


@pytest.mark.parametrize("fails", ["before", "after"])
@pytest.mark.parametrize("broken", [0, 1])
def test_an_error_between_two_servers_is_made_good(broken: int, fails: str) -> None:
    scene, clean = Scene(Admission(2)), Scene(Admission(2))
    for each in (scene, clean):
        each.step(0, 1)
    clean.step(0, 1)
    scene.servers[broken].fails = fails
    with pytest.raises(ConnectionError):
        scene.step()
    assert scene.learner.restart()
    scene.learner.step()
    scene.push_for_another(0, 1)
    for each in (scene, clean):
        each.step(0, 1)
    assert torch.equal(scene.vector(), clean.vector())
    assert scene.vector().shape == (scene.size,)
    told, want = ([u._replace(waited=0.0) for u in e.log.updates] for e in (scene, clean))
    assert told == want  # once, and traffic counted once
    assert scene.learner.clock.steps == clean.learner.clock.steps == 3


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
    update_schedule = UpdateSchedule(steps=100, minimum=250, ratio=0.5, windows=10)
    keeper = Keeper(Resume(1, exactly=Exactly(update_schedule=update_schedule)), 0)
    hand_over(keeper, range(1, 6), 1)
    found = {v: rounds_of(keeper.saved(v)[1]) for v in range(1, 10) if keeper.saved(v)[0]}
    assert found == {1: [3], 2: [3], **{number: [4] for number in range(3, 8)}, 8: [5], 9: [5]}


def test_a_version_of_many_rounds_needs_the_state_of_its_first() -> None:
    """Actors play on while the learner waits for experience, or saves the buffer."""
    update_schedule = UpdateSchedule(steps=100, minimum=250, ratio=0.1, windows=100)
    assert [update_schedule.rounds(version) for version in (1, 2, 3)] == [13, 23, 33]
    keeper = Keeper(Resume(1, exactly=Exactly(update_schedule=update_schedule)), 0)
    hand_over(keeper, range(33), 1)
    assert rounds_of(keeper.saved(1)[1]) == [13]
    assert rounds_of(keeper.saved(2)[1]) == [23]
    assert (keeper.newest("actor-0") or {})["round"] == 32


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


def test_a_role_waits_as_long_as_another_may_be_without_progress() -> None:
    for deadline, seconds in ((120.0, 600.0), (3600.0, 3600.0)):
        experiment = reshaped(PRESETS["catch"], deadline=deadline)
        roles = make_graph(experiment, begin(experiment), None).build()
        queues = [role for role in roles.values() if isinstance(role, TrajectoryQueue)]
        assert [queue.patience for queue in queues] == [seconds]


def test_events_and_the_pulse_of_a_resumed_run_have_the_time_of_the_run(
    tmp_path: Path, now: list[float]
) -> None:
    base, began = catch(1_000), now[0]
    experiment = replace(base, tracker=replace(base.tracker, pulse_seconds=1.0))
    start = stand_in(SimpleNamespace(counters={"seconds": 100.0}, steps=500))
    nothing = Plan(*[stand_in(None)] * 9)
    plan = nothing._replace(experiment=experiment, folder=tmp_path, start=start, began=began)
    write = plan.events(began=began)
    now[0] += 7.0
    write({"event": "lost"})
    Run(plan, Launcher()).pulse.beat([])
    assert read_lines(tmp_path / "events.jsonl") == [{"seconds": 107.0, "event": "lost"}]
    assert read_lines(tmp_path / "pulse.jsonl") == [{"seconds": 107.0, "roles": {}}]
