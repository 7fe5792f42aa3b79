"""Checkpoints of servers that own the parameters: whole, of one version, and resumed exactly."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import bundled_catch
from gelada.algorithms.a3c import A3C
from gelada.checkpoint import (
    Checkpoint,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from gelada.draw import draw
from gelada.errors import GeladaError
from gelada.ops.flat import FlatParameters
from gelada.ops.optimizers import OptimizerSettings
from gelada.place.inline import Inline
from gelada.presets import Experiment
from gelada.roles.admission import Async, Quorum
from gelada.roles.parameter_server import ParameterServer
from gelada.roles.tracker import Status, StopRule
from gelada.run import train
from gelada.saving import LearnerSaver, SliceSaver, aux_at
from gelada.start import begin, make_network
from gelada.types import Gradient, Params, Version

SIZE = 64
FIRST = Version(2, 10)
ALGORITHM = A3C(lr=0.01, lr_end=0.0, anneal_steps=1000)


def go_on(server: ParameterServer, steps: int = 1) -> None:
    """Make so many versions of a server's slice."""
    for _ in range(steps):
        version = server.pull().version
        values = torch.randn(SIZE, generator=torch.Generator().manual_seed(version.number))
        server.push(Gradient(0, version, 0, 1, 1, 0.0, 0.1, values))


class Tracker:
    """Keeps what is to be saved."""

    def __init__(self) -> None:
        self.saved: list[tuple[Any, ...]] = []
        self.due = True
        self.marks: dict[int, int] = {}

    def wants_checkpoint(self) -> bool:
        return self.due

    def steps_at(self, version: int) -> int | None:
        return self.marks.get(version)

    def status(self) -> Status:
        return Status(steps=777)

    def checkpoint(self, *what: Any, mixed: bool) -> None:
        self.saved.append((*what, mixed))


class Scene:
    """Three servers that put every third version aside, and who saves them."""

    def __init__(self, mixed: bool = False) -> None:
        rule = Async(9) if mixed else Quorum(1)
        self.servers = [
            ParameterServer(
                torch.full((SIZE,), float(i)), OptimizerSettings(), rule, FIRST, 0.0, every=3
            )
            for i in range(3)
        ]
        self.tracker: Any = Tracker()
        self.lines: list[str] = []
        self.saver = SliceSaver(
            self.servers, self.tracker, ALGORITHM, FIRST, mixed, self.lines.append
        )

    def numbers(self) -> list[list[int]]:
        """Return the versions of the slices of each checkpoint."""
        return [[params.version.number for params in saved[0]] for saved in self.tracker.saved]


def test_a_server_puts_aside_multiples_of_every_as_they_were() -> None:
    (server, *_) = Scene().servers
    assert server.kept() is None
    want: dict[int, tuple[Params, dict[str, torch.Tensor]]] = {}
    for number in range(11, 20):
        go_on(server)
        params, optimizer = server.state()
        want[number] = params, optimizer
        kept = server.kept()
        last = number // 3 * 3
        if last < 12:
            assert kept is None
            continue
        assert kept is not None
        assert kept[0] is want[last][0]
        assert kept[0].version == Version(2, last)
        assert all(torch.equal(kept[1][name], want[last][1][name]) for name in optimizer)


def test_a_restore_forgets_what_was_put_aside() -> None:
    (server, *_) = Scene().servers
    go_on(server, 2)
    assert server.kept() is not None
    server.restore(Version(3, 10), torch.zeros(SIZE), {})
    assert server.kept() is None


def test_only_what_all_have_put_aside_is_saved_and_once() -> None:
    scene = Scene()
    scene.tracker.marks = {12: 1200, 15: 1500}
    for server, steps in zip(scene.servers, (2, 1, 1), strict=True):
        go_on(server, steps)  # 12, 11, 11: the first has put 12 aside
        scene.saver.look()
    assert scene.numbers() == []
    for server in scene.servers[1:]:
        go_on(server)
        scene.saver.look()
        scene.saver.look()
    assert scene.numbers() == [[12, 12, 12]]
    for server in scene.servers:
        go_on(server, 3)
        scene.saver.look()  # in between some have 12 and some 15
    assert scene.numbers() == [[12, 12, 12], [15, 15, 15]]
    for (slices, optimizers, aux, steps, mixed), want in zip(
        scene.tracker.saved, (1200, 1500), strict=True
    ):
        assert [params.values.numel() for params in slices] == [SIZE] * 3
        assert [state["count"].item() for state in optimizers] == [2.0 if want == 1200 else 5.0] * 3
        assert steps == want
        assert not mixed
        assert float(aux["learning_rate"]) == 0.0  # of those steps: after anneal_steps


def test_nothing_is_saved_before_it_is_due() -> None:
    scene = Scene()
    scene.tracker.due = False
    for server in scene.servers:
        go_on(server, 2)
    scene.saver.look()
    assert scene.numbers() == []
    scene.tracker.due = True
    scene.saver.look()
    assert scene.numbers() == [[12, 12, 12]]


def test_the_last_save_is_the_newest_version_and_not_the_first_again() -> None:
    scene = Scene()
    scene.saver.last([])
    assert scene.numbers() == []
    for server in scene.servers:
        go_on(server, 1)
    scene.saver.last([])
    assert scene.numbers() == [[11, 11, 11]]
    assert scene.tracker.saved[0][3] == 777  # nobody marked it: the steps of now
    assert float(scene.tracker.saved[0][2]["learning_rate"]) == pytest.approx(0.01 * 0.223)
    assert scene.lines == []


def test_servers_of_several_versions_are_passed_over_with_a_line() -> None:
    scene = Scene()
    for server, steps in zip(scene.servers, (4, 3, 4), strict=True):
        go_on(server, steps)
    scene.saver.last([])
    assert scene.lines == [
        "the newest parameters are of several versions (server-0 at 14, server-1 at 13, "
        "server-2 at 14): passed over"
    ]
    assert scene.numbers() == [[12, 12, 12]]


def test_nothing_whole_put_aside_saves_nothing() -> None:
    scene = Scene()
    go_on(scene.servers[0], 2)
    scene.saver.last([])
    assert len(scene.lines) == 1
    assert scene.numbers() == []


def test_asynchronous_servers_may_differ_at_the_end() -> None:
    scene = Scene(mixed=True)
    for server, steps in zip(scene.servers, (4, 3, 7), strict=True):
        go_on(server, steps)
    scene.saver.last([])
    assert scene.lines == []
    assert scene.numbers() == [[14, 13, 17]]
    assert scene.tracker.saved[0][-1] is True


def test_parameters_that_are_not_finite_are_not_saved() -> None:
    scene = Scene()
    for server in scene.servers:
        go_on(server, 2)
    broken = torch.full((SIZE,), torch.nan)
    scene.servers[1].push(Gradient(0, Version(2, 12), 0, 1, 1, 0.0, 0.1, broken))
    scene.saver.last([])
    assert scene.numbers() == []


@pytest.mark.parametrize(
    ("hung", "slices", "learner"),
    [([], False, False), (["actor-1"], False, False), (["learner-0", "actor-1"], True, True),
     (["learner-1"], True, False)],
)  # fmt: skip
def test_who_has_to_end_before_the_last_save(hung: list[str], slices: bool, learner: bool) -> None:
    class Learner:
        name = "learner-0"

    mine: Any = Learner()
    assert Scene().saver.needs(hung) is slices
    assert LearnerSaver(mine).needs(hung) is learner


@pytest.mark.parametrize(("steps", "rate"), [(0, 0.01), (250, 0.0075), (5000, 0.0)])
def test_an_algorithms_own_state_follows_from_the_steps(steps: int, rate: float) -> None:
    assert float(aux_at(ALGORITHM, steps)["learning_rate"]) == pytest.approx(rate)


def often(experiment: Experiment, seconds: float = 1e-6) -> Experiment:
    tracker = replace(experiment.tracker, checkpoint_seconds=seconds, keep_checkpoints=0)
    return replace(experiment, tracker=tracker)


def test_checkpoints_of_a_run_are_what_its_servers_published(tmp_path: Path) -> None:
    experiment = often(bundled_catch(20, bundles=2, servers=3, keep_every=5))
    start = begin(experiment)
    place = Inline(draw(experiment, start, tmp_path, patience=0.0))
    servers = [place.roles[f"server-{i}"] for i in range(3)]
    tracker = place.roles["tracker"]
    log: list[str] = []
    saver = SliceSaver(
        servers, tracker, experiment.algorithm, start.version, mixed=False, log=log.append
    )
    published: dict[int, torch.Tensor] = {}
    while not any(role.finished for role in place.active):
        for role in place.active:
            role.step()
            saver.look()
        published[servers[0].pull().version.number] = torch.cat([s.pull().values for s in servers])
    saver.last([])
    tracker.finish()
    layout = FlatParameters(make_network(experiment, start)).layout
    found = [read_checkpoint(path) for path in list_checkpoints(tmp_path / "checkpoints")]
    assert [c.version for c in found] == [Version(0, number) for number in (5, 10, 15, 20)]
    for checkpoint in found:
        number = checkpoint.version.number
        assert checkpoint.steps == 512 + number * 144
        want = layout.named(published[number])
        parameters = checkpoint.group("parameter")
        assert all(torch.equal(parameters[name], tensor) for name, tensor in want.items())
        assert checkpoint.group("optimizer")["count"] == number
        rate = aux_at(experiment.algorithm, checkpoint.steps)["learning_rate"]
        assert torch.equal(checkpoint.group("aux")["learning_rate"], rate)
    assert log == []


def newest(folder: Path) -> Checkpoint:
    _, checkpoint, passed_over = newest_checkpoint(folder / "checkpoints")
    assert passed_over == []
    return checkpoint


def test_a_bundled_run_is_resumed_exactly_twice(tmp_path: Path) -> None:
    experiment = bundled_catch(20, bundles=3, actors=2, games=4)
    half = tmp_path / "half"
    train(experiment, half, log=pytest.fail)
    first = newest(half)
    assert (first.version, first.steps) == (Version(0, 20), 504 + 20 * 216)
    longer = replace(experiment, stop=StopRule(steps=504 + 35 * 216))
    ends: list[Checkpoint] = []
    for name in ("one", "two"):
        folder = Path(shutil.copytree(half, tmp_path / name))
        lines: list[str] = []
        train(longer, folder, resume=True, log=lines.append)
        assert lines == ["going on from 00000020.safetensors: 4,824 steps"]
        ends.append(newest(folder))
    one, two = ends
    assert one.version == two.version == Version(1, 35)
    assert one.steps == two.steps == 504 + 35 * 216
    assert one.tensors.keys() == two.tensors.keys() == first.tensors.keys()
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    assert one.counters["games"] == two.counters["games"] > first.counters["games"]
    assert one.counters["recent_scores"] == two.counters["recent_scores"]
    assert one.group("optimizer")["count"] == 35
    want = aux_at(experiment.algorithm, one.steps)["learning_rate"]
    assert torch.equal(one.group("aux")["learning_rate"], want)
    moved = [not torch.equal(one.tensors[n], first.tensors[n]) for n in one.tensors]
    assert any(moved)


def test_an_asynchronous_run_saves_its_servers_versions_and_goes_on(tmp_path: Path) -> None:
    base = bundled_catch(1)
    shape = replace(base.shape, bundles=3, asynchronous=True)
    stop = StopRule(steps=5000)
    experiment = replace(base, deterministic=False, shape=shape, stop=stop)
    folder = tmp_path / "run"
    train(experiment, folder, log=pytest.fail)
    first = newest(folder)
    versions = first.counters["server_versions"]
    assert len(versions) == 2
    assert first.version == Version(0, max(versions))
    assert 5000 <= first.steps == 504 + (first.steps - 504) // 72 * 72
    longer = replace(experiment, stop=StopRule(steps=first.steps + 1000))
    train(longer, folder, resume=True, log=lambda line: None)
    second = newest(folder)
    assert second.version.epoch == 1
    assert second.version.number > first.version.number
    assert second.steps >= first.steps + 1000


def test_a_checkpoint_that_lacks_a_slices_parameters_is_passed_over(tmp_path: Path) -> None:
    experiment = bundled_catch(10)
    folder = tmp_path / "run"
    train(experiment, folder, log=pytest.fail)
    whole = newest(folder)
    name = sorted(whole.group("parameter"))[0]
    tensors = {k: t for k, t in whole.tensors.items() if k != f"parameter/{name}"}
    lost = whole._replace(version=Version(0, 11), tensors=tensors)
    path = write_checkpoint(folder / "checkpoints", lost)
    with pytest.raises(GeladaError, match=r"is incomplete: [0-9,]+ of [0-9,]+ parameters"):
        read_checkpoint(path)
    found, checkpoint, (line,) = newest_checkpoint(folder / "checkpoints")
    assert found.stem == "00000010"
    assert checkpoint.version == whole.version
    assert line.startswith("checkpoint 00000011.safetensors is incomplete: ")
    assert line.endswith("; using the one before")
