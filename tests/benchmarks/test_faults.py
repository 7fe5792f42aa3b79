"""FaultSchedule on purpose: what is asked for, and that it is exactly that trouble and no other."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.lib import faults, process
from benchmarks.lib.faults import (
    Faults,
    FaultyGraph,
    Hits,
    Link,
    check_faults,
    is_a,
    main,
    parse_faults,
)
from colobus.core.errors import ColobusError
from colobus.core.types import Gradient, Update, Version
from colobus.experiment.presets import PRESETS
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.parameters.server import REPEATED, Admission, ParameterServer, ServerSettings
from colobus.runtime.groups import group_processes
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch
from helpers.outcomes import (
    assert_same,
    inline,
    outcome,
    place_inline,
    place_threads,
    run_to_the_end,
)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", Faults()),
        ("straggler=0.5s", Faults(straggler=0.5)),
        ("link=250kB", Faults(link=2.5e5)),
        ("link=10MB,delay=4,straggler=500ms,compute=50ms", Faults(0.05, 0.5, 4, 1e7)),
        ("delay=1,delay=2,", Faults(delay=2)),
        (
            "stop=server:45s,link=1.5GB,kill=any:0.5s",
            Faults(link=1.5e9, hits=(Hits("stop", "server", 45.0), Hits("kill", "any", 0.5))),
        ),
    ],
)
def test_words_and_what_they_mean(text: str, faults: Faults) -> None:
    assert parse_faults(text) == faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stragler=1s", "nearest known: straggler; such as compute=50ms,"),
        ("500ms", "known: compute, delay, kill, link, load, stop, straggler; such as "),
        ("straggler", "want such as compute=50ms,"),
        ("straggler=500", "want such as "),
        ("straggler=-1s", "want such as "),
        ("link=10Mb", "want such as "),
        ("link=server:10MB", "want such as "),
        ("link=0MB", "must be above 0 and below "),
        ("delay=no.json", "has no lags: "),
        ("delay=1.5", "must be a whole number of versions"),
        ("kill=driver:30s", r"want such as .*; kinds: any, worker, actor, server, "),
        ("kill=worker", "want such as "),
        ("stop=30s", "want such as "),
        ("stop=worker:30ms", "want such as "),
        ("kill=worker:0s", "must be above 0 and below "),
    ],
)
def test_mistakes_name_the_word(text: str, message: str) -> None:
    with pytest.raises(ColobusError, match=f"^--faults {text}: {message}"):
        parse_faults(text)


def test_what_a_run_cannot_have() -> None:
    pong, workers = PRESETS["pong"], PRESETS["dba3c-pong"]
    hit = Faults(hits=(Hits("stop", "any", 20.0),))
    check_faults(Faults(), pong)
    check_faults(hit, pong, processes=True)
    check_faults(Faults(straggler=1.0, link=1e6), workers)
    check_faults(Faults(delay=3), distributed_catch(1))
    with pytest.raises(ColobusError, match="needs a run with workers"):
        check_faults(replace(hit, straggler=1.0), pong, processes=True)
    with pytest.raises(ColobusError, match=r"^--faults delay=3: add --deterministic"):
        check_faults(Faults(delay=3), workers)
    with pytest.raises(ColobusError, match="threads cannot be killed; add --on ray"):
        check_faults(hit, workers)


class Sleeps:
    """Takes the place of `time.sleep` and notes who slept, and how long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        monkeypatch.setattr("benchmarks.lib.faults.time.sleep", self.seconds.append)


def test_a_straggler_sleeps_once_a_batch_and_learns_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = distributed_catch(12, workers=3)
    oracle, sleeps = inline(experiment), Sleeps(monkeypatch)
    place = place_inline(experiment, FaultyGraph(Faults(straggler=0.25)))
    place.run()
    kinds = [type(place.roles[f"learner-{i}"].compute).__name__ for i in range(3)]
    assert kinds == ["Sleeper", "Backprop", "Backprop"]
    assert sleeps.seconds == [0.25] * 12
    assert_same(oracle, outcome(place.roles))


def while_learner_0_sleeps(
    monkeypatch: pytest.MonkeyPatch, quorum: int, updates: int
) -> list[Update]:
    """Run 2 workers on threads; learner 0 sleeps until the other has told so many updates.

    With 0 until the other waits. The run ends when the sleeper has told its second update.
    """
    woken, told = threading.Event(), list[Update]()
    monkeypatch.setattr("benchmarks.lib.faults.time.sleep", lambda seconds: woken.wait(60))
    base = distributed_catch(1000)
    shape = replace(base.shape, quorum=quorum)
    lines: list[str] = []
    place = place_threads(
        replace(base, deterministic=False, shape=shape), lines, FaultyGraph(Faults(straggler=9.0))
    )
    tracker, report = place.roles["tracker"], place.roles["tracker"].report
    second = threading.Event()

    def note(update: Update) -> bool:
        told.append(update)
        if updates and sum(u.learner == 1 for u in told) == updates:
            woken.set()
        if sum(u.learner == 0 for u in told) == 2:
            second.set()
        over: bool = report(update)
        return over

    tracker.report = note
    place.start()
    if not updates:
        role = place.roles["learner-1"]
        while not (role.clock.steps == 1 and role.clock.stage == "wait for parameters"):
            place.wait(0.01)
            place.check()
        assert [place.roles[f"server-{i}"].pull().version.number for i in range(2)] == [0, 0]
        woken.set()
    assert second.wait(60)
    assert place.stop() == []
    place.check()
    assert lines == []
    return told


def test_with_a_backup_nobody_waits_for_the_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    told = while_learner_0_sleeps(monkeypatch, quorum=1, updates=20)
    first, second = [update for update in told if update.learner == 0][:2]
    others = [update.version.number for update in told if update.learner == 1]
    assert others[:20] == list(range(1, 21))  # a step each
    assert first.version == Version(0, 1)  # computed from the first version
    assert second.traffic is not None
    assert second.traffic[:3] == (0, 1, 0)  # and dropped
    assert second.version.number >= 20  # then it went on with the newest


def test_without_a_backup_everybody_waits_for_the_straggler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = while_learner_0_sleeps(monkeypatch, quorum=2, updates=0)
    first, second = [update for update in told if update.learner == 0][:2]
    at = told.index(first)
    assert [update.version.number for update in told[:at] if update.learner == 1] == [1]
    assert second.version == Version(0, 2)
    assert second.traffic is not None
    assert second.traffic[:3] == (1, 0, 0)


@pytest.mark.parametrize(("ahead", "delay"), [(0, 0), (1, 0), (1, 3), (0, 4)])
def test_actors_play_with_parameters_exactly_so_much_older(ahead: int, delay: int) -> None:
    """On threads, where an actor without any delay can wait for its learner's pull."""
    place = place_threads(distributed_catch(20, ahead=ahead), [], FaultyGraph(Faults(delay=delay)))
    lags: dict[int, list[tuple[float, float, float]]] = {}
    tracker, report = place.roles["tracker"], place.roles["tracker"].report

    def note(update: Update) -> bool:
        lags.setdefault(update.version.number - 1, []).append(update.lag)
        over: bool = report(update)
        return over

    tracker.report = note
    assert run_to_the_end(place).version == Version(0, 20)
    lags = {number: told for number, told in lags.items() if number < 20}
    want = {n: [(float(min(n, ahead + delay)),) * 3] * 2 for n in range(20)}
    assert lags == want
    assert place.roles["replay-0"].dropped == 0


def test_lags_are_drawn_for_each_rollout_and_the_same_again(tmp_path: Path) -> None:
    """Half of the rollouts are one version behind, as without faults, and half are four."""
    file = tmp_path / "lags.json"
    file.write_text('{"lags": [[0, 0.5], [3, 0.5]]}')
    experiment = distributed_catch(40)

    def lags() -> list[tuple[int, float]]:
        place, found = place_inline(experiment, FaultyGraph(parse_faults(f"delay={file}"))), []
        tracker, report = place.roles["tracker"], place.roles["tracker"].report

        def note(update: Update) -> bool:
            assert update.lag[0] == update.lag[2]
            found.append((update.version.number - 1, update.lag[0]))
            over: bool = report(update)
            return over

        tracker.report = note
        place.run()
        return found

    drawn = lags()
    assert {lag for number, lag in drawn if number >= 4} == {1.0, 4.0}
    assert all(lag in (min(number, 1.0), min(number, 4.0)) for number, lag in drawn)
    late = sum(lag > 1 for number, lag in drawn if number > 1)
    assert 20 <= late <= 60  # of 2 workers' 38 rollouts each
    assert lags() == drawn


@pytest.mark.parametrize("loaders", [0, 1])
def test_a_slow_load_is_the_learners_or_the_loaders(
    loaders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rung of the ladder: who waits for a batch, and that no bit is another."""
    slept: list[tuple[str, float]] = []

    def sleep(seconds: float) -> None:
        slept.append((threading.current_thread().name, seconds))

    plain = catch(512 + 8 * 512, deterministic=True)
    experiment = replace(plain, shape=replace(plain.shape, loaders=loaders))
    check_faults(Faults(load=0.02), experiment)
    monkeypatch.setattr(faults, "time", SimpleNamespace(sleep=sleep))
    place = place_threads(experiment, [], FaultyGraph(parse_faults("load=20ms")))
    found = run_to_the_end(place)
    assert torch.equal(found.parameters, inline(plain).parameters)
    assert set(slept) == {("loader-0" if loaders else "learner-0", 0.02)}
    assert len(slept) >= 8


def test_all_that_moves_goes_through_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = distributed_catch(10, workers=3, servers=2)
    oracle, sleeps = inline(experiment), Sleeps(monkeypatch)
    place = place_inline(experiment, FaultyGraph(Faults(link=1e6)))
    place.run()
    assert {type(place.roles[f"link-{i}"]) for i in range(2)} == {Link}
    found = outcome(place.roles)
    assert_same(oracle, found)
    workers = found.status.workers
    assert workers is not None
    vector = 4 * place.roles["learner-0"].client.flat.layout.size
    pushed_since = 3 * vector  # by each after its last report
    assert sum(sleeps.seconds) * 1e6 == pytest.approx(workers.traffic.moved + pushed_since)
    assert len(sleeps.seconds) == 10 * 3 * 2 * 2  # updates, servers, both ways


def test_queues_of_their_own_are_hit_as_replays() -> None:
    experiment = catch(1000)
    experiment = replace(experiment, shape=replace(experiment.shape, replays=2))
    for deterministic, kind in ((False, "queue"), (True, "replay")):
        each = replace(experiment, deterministic=deterministic)
        specs = group_processes(make_graph(each, begin(each), None, spread=True), 1)
        found = {spec.name: (spec.kind, spec.roles) for spec in specs if is_a(spec, "replay")}
        assert found == {f"replay-{i}": (kind, (f"replay-{i}",)) for i in range(2)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train pong --faults link=10MB", "needs a run with workers"),
        ("train dba3c-pong --faults lag=4", "--faults lag=4: nearest known: "),
    ],
)
def test_the_program_is_colobus_with_one_flag_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert main([*words.split(), "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert Path(process.FAULTY[1]).is_file()


def test_a_run_with_a_fault_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "dba3c-catch", "--faults", "straggler=1ms", "--steps", "3000", "--json"]
    assert main([*words, "--out", str(tmp_path / "run"), "--no-finish", "--no-tensorboard"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] >= 3000


def test_a_link_carries_one_after_the_other_and_answers_as_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ParameterServer(
        torch.ones(64),
        OptimizerSettings(),
        Admission(1),
        Version(0, 0),
        ServerSettings(patience=0.0, keep_every=1),
    )
    link = Link(server, 256.0)
    inside: list[int] = []
    most = [0]

    def sleep(seconds: float) -> None:
        assert seconds == 1.0  # 64 numbers of 4 bytes
        inside.append(1)
        most[0] = max(most[0], len(inside))
        threading.Event().wait(0.01)  # time for the others to come in, if they can
        inside.pop()

    monkeypatch.setattr("benchmarks.lib.faults.time.sleep", sleep)
    threads = [threading.Thread(target=link.pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
    gradient = Gradient(0, Version(0, 0), 0, 1, 1, 0.1, torch.ones(64))
    assert link.push(gradient) == (Version(0, 1), True, "")
    assert link.pull() is server.pull()
    again = link.exchange(gradient, Version(0, 1))
    assert (again.answer.reason, again.params) == (REPEATED, server.pull())
    assert link.state()[0] is server.state()[0]
    link.close()
    assert link.pull(Version(0, 1), exactly=True) is server.pull()  # closing is the server's
