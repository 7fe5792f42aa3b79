"""``--resume`` goes on from the newest complete checkpoint, exactly."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from colobus.cli.display import Printer
from colobus.cli.interrupts import Interrupted
from colobus.cli.train import Train
from colobus.cli.train import finish as at_the_end
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings
from colobus.evaluation.agent import load
from colobus.experiment.settings import Experiment
from colobus.ops.flat import Layout
from colobus.ops.optimizers import OptimizerSettings
from colobus.runs.config import Config, check_of, identity, read_config, write_config
from colobus.training.run import train
from colobus.training.start import begin, begin_again, make_network
from colobus.training.topology import make_graph
from colobus.training.warm import read_weights
from conftest import catch, reshaped, tuned
from helpers.launching import CATCH, colobus, complete, finish, printed, refused, start, wait_until

BATCH = 512  # steps of a round on Catch: 2 actors x 8 games x 32 steps


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed (-9) while it learned, with at least three complete checkpoints."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    args = ("--minutes", 5, "--checkpoint-seconds", 0.3, "--keep-checkpoints", 0)
    process = start(*CATCH, "--out", folder, *args)
    wait_until(lambda: len(complete(folder)) >= 3, process)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    return folder


@pytest.fixture
def run(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "run"))


@pytest.mark.processes
def test_steps_versions_and_metrics_go_on_and_the_epoch_is_raised(run: Path) -> None:
    config = read_config(run)
    changed = tuned(config.experiment, entropy_end=0.1, anneal_steps=1)  # those of the run count
    write_config(run, config._replace(experiment=replace(config.experiment, algorithm=changed)))
    before, lines = complete(run)[-1], (run / "metrics.jsonl").read_text().splitlines()
    stop = before["steps"] + 20 * BATCH
    code, out, err = colobus("train", "--resume", run, "--no-finish", "--steps", stop)
    assert (code, err) == (0, "")
    assert f"going on from {before['version']:08d}.safetensors: {before['steps']:,} steps" in out
    after = complete(run)[-1]
    assert after["epoch"] == before["epoch"] + 1
    assert after["version"] >= before["version"] + 20
    assert after["steps"] - before["steps"] == BATCH * (after["version"] - before["version"])
    assert after["counters"]["games"] > before["counters"]["games"]
    assert after["counters"]["seconds"] > before["counters"]["seconds"]
    now = (run / "metrics.jsonl").read_text().splitlines()
    assert now[: len(lines)] == lines
    assert json.loads(now[len(lines)])["steps"] == before["steps"] + BATCH
    assert float(newest_checkpoint(run / "checkpoints")[1].group("aux")["entropy"]) == 0.1


@pytest.mark.processes
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(run: Path) -> None:
    before, newest = (f"{said['version']:08d}" for said in complete(run)[-2:])
    steps = complete(run)[-2]["steps"]
    path = run / "checkpoints" / f"{newest}.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    out = printed("train", "--resume", run, "--no-finish", "--steps", steps + 2 * BATCH)
    line = next(line for line in out.splitlines() if f"checkpoint {newest}.safetensors" in line)
    assert "is truncated or damaged" in line
    assert line.endswith("using the one before")
    assert f"going on from {before}.safetensors: {steps:,} steps" in out


@pytest.mark.processes
def test_a_run_past_its_stop_rule_says_so_and_is_left_as_it_is(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for flag, goal, rule in (
        ("--steps", 1000, "steps of 1,000"),
        ("--minutes", 0.001, "minutes of 0.001"),
        ("--until-score", -2, "of -2"),
    ):
        out = printed("train", "--resume", run, "--no-finish", flag, goal)
        assert f"{run} is past its stop rule: " in out
        assert rule in out
        assert out.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.processes
def test_what_was_not_evaluated_at_the_end_is_so_by_resuming_it(run: Path) -> None:
    """As after a Ctrl-C in the last evaluation of a run, or while its film is made."""
    words = ("train", "--resume", run, "--steps", 1000)
    assert "protocol training: games as in training" in printed(*words)
    assert len(list(run.glob("eval/*.json"))) == 1
    assert (run / "curve.png").is_file()
    assert printed(*words).count("\n") == 1  # once is enough
    (run / "curve.png").unlink()
    assert "protocol training" in printed(*words, "--on", "ray", "--device", "cuda")  # not here
    (run / "film.mp4").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colobus.evaluation.films.player.record", Mock(side_effect=Interrupted(130)))
        with pytest.raises(Interrupted):
            at_the_end(run, Printer(), {}, Train())
    printed(*words)
    assert (run / "film.mp4").is_file()


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two workers around two servers, with settings of A3C's own."""
    folder = tmp_path_factory.mktemp("distributed") / "run"
    words = ("--n", 4, "--ratio-clip", 5, "--entropy-end", 0.002, "--anneal-steps", 20_000)
    printed("train", "dba3c-catch", "--no-finish", "--out", folder, "--steps", 8000, *words)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_slices_of_a_checkpoint_come_back_to_any_number_of_servers(
    distributed: Path, servers: int
) -> None:
    config = read_config(distributed)
    _, checkpoint, _ = newest_checkpoint(distributed / "checkpoints")
    experiment = reshaped(config.experiment, servers=servers)
    begun = begin_again(distributed, config, print)
    layout = Layout(make_network(experiment, begun))
    roles = make_graph(experiment, begun, None, patience=0.0).build()
    states = [roles[f"server-{i}"].state() for i in range(servers)]
    assert {params.version for params, _ in states} == {begun.version}
    wholes = {"parameter": torch.cat([params.values for params, _ in states])}
    for kind in ("mean", "square"):
        wholes[f"optimizer/{kind}"] = torch.cat([state[kind] for _, state in states])
    for prefix, whole in wholes.items():
        for name, tensor in layout.named(whole).items():
            want = checkpoint.tensors[f"{prefix}/{name}"]
            torch.testing.assert_close(tensor, want, rtol=0.0, atol=0.0, msg=f"{prefix}/{name}")
    counts = [float(state["count"]) for _, state in states]
    assert counts == [float(checkpoint.tensors["optimizer/count"])] * servers
    assert counts[0] > 0


@pytest.mark.slow
def test_only_what_ends_a_run_or_is_written_may_change(distributed: Path) -> None:
    """The flags are those of the run's algorithm."""
    words = ("train", "--resume", distributed)
    err = refused(*words, "--width", 128, "--n", 9, "--quorum", 1)
    assert err.startswith("colobus: --width, --n, --quorum with --resume: ")
    assert refused("train", "pong", *words[1:]).startswith("colobus: 'pong' with --resume: ")
    assert refused(*words, "--clip", 0.3).startswith("colobus: unknown flag '--clip'")
    out = printed(*words, "--n", 4, "--steps", 8000)  # said again, and over already
    assert "is past its stop rule: " in out


def test_a_checkpoint_of_another_run_or_with_other_settings_is_not_taken(tmp_path: Path) -> None:
    """Another version may have other defaults: within a version alone settings are compared."""
    folders = [tmp_path / "mine", tmp_path / "theirs"]
    for folder in folders:
        train(catch(512 + 2 * 512), folder)
    mine, theirs = (newest_checkpoint(folder / "checkpoints")[0] for folder in folders)
    config = read_config(tmp_path / "mine")
    own = newest_checkpoint(mine.parent)[1]
    assert own.run == identity(config)
    assert len(config.about["run"]) == 16
    newer = mine.with_name("00009999.safetensors")  # it looks newer, and its tensors fit
    for suffix in (".safetensors", ".json"):
        shutil.copy(theirs.with_suffix(suffix), newer.with_suffix(suffix))
    lines: list[str] = []
    start = begin_again(tmp_path / "mine", config, lines.append)
    assert (start.version.number, start.run) == (own.version.number, identity(config))
    said = "checkpoint 00009999.safetensors is of another run: its run is "
    assert [line.startswith(said) for line in lines] == [True, False]
    assert load(tmp_path / "mine", checkpoint="last").checkpoint.version == own.version
    with pytest.raises(ColobusError, match=r"00009999\.safetensors is of another run: its run is "):
        load(newer)
    network = replace(config.experiment.network, autoencoder_weight=2.0)
    changed = config._replace(experiment=replace(config.experiment, network=network))
    said = "^is of another run: its settings of game and network is"
    with pytest.raises(ColobusError, match=said):
        check_of(changed)(own)
    check_of(changed._replace(about=config.about | {"colobus": "0.0.1"}))(own)


def test_an_agent_plays_with_the_mean_of_the_parameters_if_there_is_one(tmp_path: Path) -> None:
    """And a new run begins with it; the run itself goes on with the newest."""
    run = tmp_path / "run"
    experiment = replace(catch(512 + 4 * 512), optimizer=OptimizerSettings(average=0.5))
    train(experiment, run)
    last = newest_checkpoint(run / "checkpoints")[0]  # of a run itself it may be the best
    agent = load(last)
    means, newest = (agent.checkpoint.group(g) for g in ("optimizer/average", "parameter"))
    assert means.keys() == newest.keys()
    for name, value in agent.net.named_parameters():
        assert torch.equal(value, means[name])
    assert any(not torch.equal(means[name], newest[name]) for name in means)
    weights = read_weights(last, print)
    for begun, want in (
        (begin(weights.config.experiment, weights=weights), means),
        (begin_again(run, read_config(run), print), newest),
    ):
        assert begun.parameters is not None
        assert begun.parameters.keys() == want.keys()
        assert all(torch.equal(begun.parameters[name], want[name]) for name in want)


def test_whole_numbers_are_the_same_settings_once_they_were_written(tmp_path: Path) -> None:
    games = GameSettings(sticky=1, max_frames=600)  # 1.0 in config.json's reader
    config = Config("pong", Experiment(games=games), 6, {"run": "5a"})
    write_config(tmp_path, config)
    assert identity(read_config(tmp_path)) == identity(config)
    others = [GameSettings(sticky=1), GameSettings(sticky=0.5, max_frames=600)]
    digests = {
        identity(config._replace(experiment=Experiment(games=g)))["settings"] for g in others
    }
    assert len(digests | {identity(config)["settings"]}) == 3


@pytest.mark.slow
def test_a_score_alone_is_no_budget_for_a_share(tmp_path: Path) -> None:
    """Schedules would fall back to the steps of the run: its learning rate would jump up."""
    run = tmp_path / "run"
    printed(*CATCH, "--steps", 2_000, "--anneal-share", 1, "--out", run)
    said = refused("train", "--resume", run, "--until-score", 0.9)
    assert "--anneal-share 1: its schedules are a share of --steps or --minutes; give one" in said
    assert "past its stop rule" in printed("train", "--resume", run, "--no-finish")
