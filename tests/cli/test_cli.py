"""The command line: what words mean, and that every mistake is one line and exit code 2."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from colobus.algorithms.a3c import A3C
from colobus.algorithms.appo import APPO
from colobus.cli.display import Printer
from colobus.cli.evaluate import table_beside
from colobus.cli.experiment_flags import ExperimentFlags as Settings
from colobus.cli.experiment_flags import resolve
from colobus.cli.main import COMMANDS
from colobus.core.checkpoint import checksum_of, newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings
from colobus.evaluation.protocols import PROTOCOLS
from colobus.evaluation.scores import compare
from colobus.experiment.presets import FAMILIES, NOTES, PRESETS, preset
from colobus.experiment.settings import flag, groups_of
from colobus.roles.tracker import StopRule
from colobus.runs.folder import claimed, free_folder
from colobus.training.entry import train
from colobus.training.words import already_over, stop_in_words
from conftest import stand_in, tuned
from helpers.launching import colobus, finish, printed, python, refused, start, told
from helpers.made_runs import make_run
from helpers.players import write_run

Trained = tuple[Path, dict[str, Any], str]
"""A run: its folder, the JSON on stdout, and stderr."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train Catch for a short time, with everything at its end."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colobus.roles.tracker.tensorboard.END_SECONDS", 300.0)
        code, out, err = colobus("train", "catch", "--out", folder, "--steps", 10_000, "--json")
    assert code == 0, err
    return folder, json.loads(out), err


HEAVY = {"torch", "numpy", "ale_py", "matplotlib", "pydantic", "tyro", "rich"}
SETTLED = [name for name in COMMANDS if name not in ("train", "show", "bench", "plan", "slurm")]
"""Commands without settings of an experiment."""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("heavy", "words"),
    [
        (HEAVY, ["--version", "--help", "", "trian"]),
        ({"torch"}, [f"{words} nowhere" for words in ("eval", "record", "eval --episodes x")]),
        ({"torch"}, [f"{name} --help" for name in SETTLED]),
    ],
)
def test_simple_questions_import_nothing_heavy(heavy: set[str], words: list[str]) -> None:
    script = (
        "import sys; from colobus.cli.main import run\n"
        "for words in sys.argv[1:]:\n"
        "    run(words.split())\n"
        f"    print('#', words, {heavy} & set(sys.modules))"
    )
    said = python("-c", script, *words).splitlines()
    assert [line for line in said if line.startswith("# ")] == [f"# {one} set()" for one in words]


@pytest.mark.processes
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1"])
@pytest.mark.parametrize("words", ["train --env slow:make --out RUN", "eval RUN", "watch RUN"])
def test_a_signal_while_modules_are_imported_ends_the_command_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, name: str
) -> None:
    """Of the import of a module that swallows what is raised in it, as some libraries do."""
    slow = "import time\ntry:\n    print('importing', flush=True)\n    time.sleep(300)\n"
    for module in ("tyro", "slow"):
        (tmp_path / f"{module}.py").write_text(f"{slow}except BaseException:\n    pass\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start(*words.replace("RUN", str(tmp_path / "run")).split())
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(getattr(signal, name))
    assert finish(process) == (128 + getattr(signal, name), "", "colobus: stopped\n")
    assert not (tmp_path / "run").exists()


INTERRUPTED = """
import os, runpy, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == "colobus.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
runpy.run_module("colobus", run_name="__main__")
"""


@pytest.mark.processes
def test_a_signal_before_the_command_line_is_imported_is_a_line_too(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    assert finish(start(script=script)) == (130, "", "colobus: stopped\n")


MISTAKES = {
    "train": "which game or preset",
    "train pnog": "unknown game or preset 'pnog': nearest known: pong",
    "train pong pang": "unknown argument 'pang'",
    "train pong --stepz 5": "unknown flag '--stepz': nearest known: --steps",
    "train pong --learning_rte 5": "unknown flag '--learning_rte'",
    "train --steps 5 pong": "which game or preset? name it first, such as: colobus train pong",
    "train pong --lr=fast": "--lr fast: not a number",
    "train pong --game breakout": "unknown flag '--game'",
    "train pong --steps": "…: a value is missing",
    "train pong --advantage td": "…: must be one of 'gae', 'vtrace'",
    "train pong --actors 0": "…: must be at least 1 and at most 1,024",
    "train pong --lr 0.1": "…: must not be above --lr-max 0.004; raise that too",
    "train pong --gamma 1.5": "…: must be at least 0 and at most 1",
    "show catch --gamma 1.0000001": "…: must be at least 0 and at most 1",
    "train pong --seed -1": "…: must be at least 0",
    "show catch --seed 3000000000": "…: must be at least 0 and at most 2,147,483,647",
    "train pong --size 5": "…: the torso 'small' needs at least 14",
    "train pong --torso nature --size 35": "…: the torso 'nature' needs at least 36",
    "train catch --torso small": "those of catch are 10x5; take --torso tiny",
    "train pong --torso nature --autoencoder latent": "…: half of 42 pixels is too small for the "
    "torso 'nature', which needs 36; use --size 72 or more, or another form",
    "train dqn-pong --autoencoder auxiliary": "… with DQN: only APPO has a loss for it; leave it "
    "out, or take a preset with APPO, such as ppo-pong",
    "train dba3c-pong --autoencoder predict": "… with A3C: only APPO has a loss for it, and DQN "
    "for predict; leave it out",
    "train gorila-catch --autoencoder predict": "… with --returns n_step: it predicts what follows "
    "in a window, and n-step returns look at its ends only; use --returns q_lambda",
    "train pong --minibatch 2049": "…: must not be above the batch of 2048 samples",
    "train pong --kl-coeff 1": "… with --kl-adjust 1.1: a KL term and the learning rate would "
    "follow the same divergence; use --kl-adjust 1",
    "train pong --lr-end 0": "… with --kl-adjust 1.1: the learning rate follows the KL divergence; "
    "use --kl-adjust 1",
    "train pong --target-every 2": "… with --advantage gae: a target policy needs the ratios of "
    "V-trace; use --advantage vtrace",
    "train --resume nowhere": "'nowhere' is no run: it has no config.json",
    "eval": "RUN is missing",
    "eval nowhere": "'nowhere' is no run: it has no config.json",
    "eval RUN --episodes 0": "…: must be at least 1",
    "eval RUN --protocol hard": "…: must be one of 'dba3c', 'human', 'noop', ",
    "record RUN --out film.avi": "…: must end in .mp4 or .gif",
    "bench pong --seconds 1": "…: must be at least 6",
    "train pong --workers 2": "… with APPO: not tested; leave out --workers and --learners",
    "train dba3c-pong --workers 0": "… with A3C: not tested; use --workers 1 or more",
    "train dba3c-pong --quorum 3": "quorum 3 with 2 learner(s): a step would never be complete; "
    "ask for at most 2",
    "train dba3c-pong --asynchronous --quorum 2": "… with --asynchronous: every gradient makes a "
    "step",
    "train dba3c-pong --deterministic --quorum 1": "… with --deterministic: which gradients count "
    "depends on who is faster; use a quorum of all 2 workers",
    "train dba3c-pong --deterministic --asynchronous": "… with --deterministic: ",
    "show dba3c-catch --servers 64": "…: the network has only ",
    "train catch --on ray --shrink": "…: has an effect only with --workers or --learners",
    "train dba3c-pong --deterministic --batch 40": "… with --deterministic: a batch is one "
    "trajectory of each actor there; use --batch 0",
    "train dba3c-pong --batch 19": "…: must be at least one window of --length 20 steps",
    "train dba3c-pong --lr-jumps 1M:0.1,900k:0.2": "…: '900k:0.2': its steps must be above those "
    "of the jump before",
    "train dba3c-pong --entropy-jumps 1M": "…: '1M': want STEPS:VALUE, such as ",
    "train catch --name !": "…: must have a letter or a digit",
    "train catch --out b --name a": "… with --out: the folder has a name; leave one of them",
    "train dqn-pong --recurrent lstm": "… with DQN: it does not learn from sequences; leave it "
    "out, or take a preset with APPO, such as ppo-pong",
    "train pong --recurrent lstm --sequence 20": "--length 128 with …: must be a multiple of it; "
    "use --length 140 or --sequence 16",
    "train pong --recurrent lstm --minibatch 15": "…: must not be below --sequence 16, as a "
    "minibatch has whole sequences; raise it or lower the other",
    "train gorila-catch-pair": "catch-pair with DQN: a replay buffer keeps games of one agent; "
    "take a preset with APPO",
    "train dba3c-catch-pair": "catch-pair with A3C: it has several agents; take a preset with APPO",
    "train catch-pair --policies separate --batch 544": "… with --policies separate: 17 windows of "
    "a queue cannot be shared equally by 2 agents; use 512",
    "train pong --values histograms --atoms 19": "… with --values histograms: must be at least 20",
    "train pong --n 5": "unknown flag '--n': A3C, DQN and IQN have it, APPO has not; take a3c-",
    "train dba3c-pong --until-evaluated 10": "…: the run has no evaluator; add --evaluator",
    "train boxing --evaluator --until-evaluated auto": "…: boxing has no target score (only "
    "breakout, pong, ",
    "train gorila-catch --deterministic": "… with a replay buffer and several ",
    "train dqn-pong --samples-per-insert 0 --deterministic": "… with a replay ",
    "train dqn-pong --deterministic --keep": "… with --deterministic: the replay buffer is ",
    "train dqn-pong --deterministic --outlier 3": "--outlier with --deterministic: actors count ",
    "bench pong --costs costs.json --on ray": "… with --costs: it needs no runtime; leave --on out",
    "bench dqn-pong --samples-per-insert 0": "…: colobus bench must know how often a step is "
    "learned from",
    "bench pong --profile trace.txt": "…: must end in .json",
    "bench pong --profile nowhere/trace.json": "…: there is no folder nowhere; make it first",
    "suite catch --steps 100 --protocol training --out RUN": "--torso pooled: needs frames of at "
    "least 34x34, those of catch are 10x5; take --torso tiny (a suite's settings are those of "
    "--preset)",
}
"""What is said of words; … stands for the last flag with its value."""


@pytest.mark.slow
@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(words: str, trained: Trained) -> None:
    code, _, err = colobus(*words.replace("RUN", str(trained[0])).split())
    assert MISTAKES[words].replace("…", words[words.rfind("--") :]) in err
    assert re.fullmatch(r"colobus: [^\n]+\n", err)
    assert code == 2


@pytest.mark.parametrize(
    "words",
    [
        *("train --resume=", "train catch --resume ", "train catch --from ", "train catch --out="),
        *("train catch --resume-or-start --out ", "eval run --checkpoint ", "export run --hub="),
        *("report run --csv ", "eval ", "report ", "report run ", "train catch --env="),
        *("suite pong --preset ", "train catch --on ray --address ", "train catch --name "),
        *("train catch --algorithm ", "train catch --track=", "train catch --cores="),
        *("train catch --place ", "train catch --act-device=", "slurm catch --partition "),
        *("slurm catch --account=", "report runs --protocol ", "train catch --own-torso="),
        *("train catch --own-heads ", "train catch --observe=", "train catch --own_torso "),
        *("train catch --own_heads=", "show catch --act_device="),
    ],
)
def test_an_empty_name_is_refused_and_not_as_if_left_out(here: Path, words: str) -> None:
    last = words.split(" ")[-1] or words.split()[-1]
    what = last.rstrip("=").replace("_", "-") if last.startswith("--") else "''"
    assert f"colobus: {what} is empty; give it a value, " in refused(*words.split(" "))
    assert list(here.iterdir()) == []


def test_a_file_or_an_impossible_place_is_no_out_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in refused("train", "catch", "--out", tmp_path / "file")
    code, _, err = colobus("train", "catch", "--out", "/proc/none")
    assert code == 2
    assert "--out /proc/none: cannot be made: " in err
    long = tmp_path / ("x" * 300)
    err = refused("train", "catch", "--out", long)
    assert f"--out {long}: cannot be made: File name too long; name another folder" in err
    assert refused("eval", long) == f"colobus: {long}: File name too long\n"


def test_a_file_in_a_run_and_an_exported_agent_are_no_runs(tmp_path: Path) -> None:
    file = make_run(tmp_path / "run") / "config.json"
    said = f"colobus: {str(file)!r} is a file; name the run's folder, {file.parent}\n"
    assert refused("train", "catch", "--from", file) == said
    assert refused("eval", file) == said
    inner = file.parent / "checkpoints" / "00000007.json"
    inner.parent.mkdir()
    inner.touch()
    assert f"name the run's folder, {file.parent}\n" in refused("eval", inner)
    (tmp_path / "README.md").touch()
    assert refused("eval", tmp_path / "README.md").endswith("name the run's folder\n")
    (file.parent / "model.safetensors").touch()
    said = f"{file.parent} is an exported agent and learns no more; name a run"
    assert said in refused("follow", file.parent)


@pytest.mark.slow
def test_a_path_may_have_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write_run(folder / "run")
    printed("show", folder / "run")


def test_every_setting_is_a_flag_with_help() -> None:
    shown = printed("train", "pong", "--help-all")
    groups = groups_of(PRESETS["pong"]).items()
    names = [flag(name, of) for of, group in groups for name in vars(group) if name != "game"]
    assert "--optimizer-epsilon" in names
    for name in [*names, "--seed", "--deterministic"]:
        rows = re.search(rf"{name}\b[^\n]*\n?[^\n]*[a-z]{{3}}", shown)
        assert rows is not None, name


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("", PRESETS["pong"].stop),
        ("--minutes 2", StopRule(minutes=2.0)),
        ("--steps 5000", StopRule(steps=5000)),
        ("--until-score 3", StopRule(until_score=3.0)),
        ("--steps 5000 --until-score 3", StopRule(steps=5000, until_score=3.0)),
    ],
)
def test_a_given_stop_rule_drops_the_presets(words: str, rule: StopRule) -> None:
    assert resolve(Settings, "train", ["pong", *words.split()]).experiment.stop == rule


def test_the_name_says_what_it_implies() -> None:
    wanted = resolve(Settings, "train", ["ALE/Breakout-v5", "--steps", "9"])
    assert wanted.experiment.games.game == "breakout"
    assert wanted.experiment.games.sticky == 0.25
    assert "sticky actions 0.25" in wanted.note
    pong = resolve(Settings, "train", ["ALE/Pong-v5", "--sticky", "0.1"]).experiment
    assert pong.games == replace(PRESETS["pong"].games, sticky=0.1)


@pytest.mark.slow
def test_defaults_come_from_the_preset() -> None:
    for name in (*PRESETS, "seaquest"):
        base, _ = preset(name)
        assert resolve(Settings, "train", [name]).experiment == base


@pytest.mark.parametrize("family", FAMILIES)
def test_a_game_after_an_algorithm_has_its_general_settings(family: str) -> None:
    seaquest, note = preset(f"{family}-Seaquest")
    assert note == ""
    assert seaquest.games.game == "seaquest"
    like = replace(FAMILIES[family].games, game="seaquest")
    assert seaquest == replace(FAMILIES[family], games=like)
    own: Any = seaquest.algorithm
    its_pong, has_own = preset(f"{family}-pong")[0], f"{family}-pong" in PRESETS
    pong: Any = its_pong.algorithm
    assert type(own) is type(pong)
    assert (own.anneal_steps > pong.anneal_steps) == has_own
    assert its_pong == PRESETS.get(f"{family}-pong", its_pong)
    for name in ("Pong", "PongNoFrameskip-v4"):
        assert preset(f"{family}-{name}")[0] == its_pong
    assert preset(f"{family}-ALE/Pong-v5")[0].games.sticky == 0.25
    with pytest.raises(ColobusError, match=f"unknown .*'{family}-seaqest'.*{family}-seaquest"):
        preset(f"{family}-seaqest")


def test_an_algorithms_own_flags_are_known_for_its_presets() -> None:
    words = "dba3c-pong --n 5 --ratio-clip 10 --quorum 1 --servers 4 --size 84 --torso nature"
    found = resolve(Settings, "train", [*words.split(), "--no-tensorboard", "--seed", "7"])
    base = PRESETS["dba3c-pong"]
    assert found.experiment == replace(
        base,
        seed=7,
        games=replace(base.games, size=84),
        network=replace(base.network, torso="nature"),
        algorithm=tuned(base, n=5, ratio_clip=10.0),
        shape=replace(base.shape, quorum=1, servers=4),
        tracker=replace(base.tracker, tensorboard=False),
    )
    for name, algorithm, strange in (
        ("dba3c-pong", A3C(), {"--clip", "--epochs", "--kl"}),
        ("pong", APPO(), {"--n", "--ratio-clip"}),
    ):
        shown = {*re.findall(r"--[a-z][\w-]*", printed("train", name, "--help-all"))}
        assert {flag(field) for field in vars(algorithm)} <= shown
        assert not strange & shown


TARGETS = {"breakout": 300, "pong": 10, "riverraid": 4000, "seaquest": 1830, "space_invaders": 700}


@pytest.mark.parametrize("game", TARGETS)
def test_auto_is_the_published_target_of_the_game(game: str) -> None:
    words = [game, "--until-evaluated", "auto", "--evaluator"]
    stop = resolve(Settings, "train", words).experiment.stop
    assert stop == StopRule(until_evaluated=TARGETS[game])


def test_the_first_free_folder(here: Path) -> None:
    assert free_folder("pong") == Path("runs/pong-1")
    for number in (1, 2, 4):
        Path(f"runs/pong-{number}").mkdir(parents=True)
    assert free_folder("pong") == Path("runs/pong-3")
    assert free_folder("ALE/Pong-v5") == Path("runs/ale-pong-v5-1")
    Path("runs/pong-3").symlink_to("nowhere")
    with claimed(free_folder("pong"), free=True) as folder:
        assert folder == Path("runs/pong-5")


def test_a_new_run_takes_the_next_free_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(name: str) -> Path:
        free = free_folder(name)
        free.mkdir(parents=True)  # by the other process
        return free

    broken = Mock(side_effect=ColobusError("no games today"))
    monkeypatch.setattr("colobus.training.start.open_games", broken)
    for module in ("cli.train", "training.entry"):
        monkeypatch.setattr(f"colobus.{module}.free_folder", slow)
    code, out, _ = colobus("train", "catch")
    assert code == 2
    assert "learning catch into runs/catch-2: " in out
    said: list[str] = []
    with pytest.raises(ColobusError, match="no games today"):
        train("catch", log=said.append)
    assert "learning catch into runs/catch-3: " in said[0]
    assert sorted(path.name for path in Path("runs").iterdir()) == ["catch-1", "catch-2"]


def test_stop_rules_in_words() -> None:
    assert stop_in_words(StopRule()) == "until Ctrl-C"
    assert "score 1234567 (" in stop_in_words(StopRule(until_score=1234567.0))
    words = stop_in_words(StopRule(minutes=1.5, until_evaluated=300.0))
    assert words.startswith("until 1.5 min or evaluated score 300")


@pytest.mark.slow
def test_training_leaves_everything_and_says_where(trained: Trained) -> None:
    folder, summary, err = trained
    assert summary["folder"] == str(folder)
    assert summary["stopped"] == "by its rule"
    steps = summary["steps"]
    assert 10_000 <= steps < 10_000 + 512
    for name in ("config.json", "metrics.jsonl", "curve.png", "film.mp4"):
        assert (folder / name).stat().st_size > 100, name
    assert (folder / "film.mp4").read_bytes()[4:8] == b"ftyp"
    events = list((folder / "tensorboard").glob("events.*"))
    assert sum(path.stat().st_size for path in events) > 100
    (file,) = (folder / "eval").glob("*-training-50-sampled-seed1.json")  # of newest or best
    saved = json.loads(file.read_text())
    assert saved == summary["evaluation"]
    assert saved["episodes"] == 50
    again = f"train --resume {folder} --steps {2 * steps}"
    for words in (f"record {folder}", f"eval {folder}", again):
        assert f"colobus {words}" in err
    assert already_over(folder, StopRule(steps=steps)) == f"{steps:,} steps of {steps:,}"
    assert already_over(folder, StopRule(steps=steps + 1)) == ""
    path = newest_checkpoint(folder / "checkpoints")[0].with_suffix(".json")
    before, about = path.read_text(), json.loads(path.read_text())
    about["counters"]["evaluated"] = [3, 0.75]
    path.write_text(json.dumps(about | {"checksum": checksum_of(about)}))
    assert already_over(folder, StopRule(until_evaluated=0.8)) == ""
    assert already_over(folder, StopRule(until_evaluated=0.7)) == "evaluated score 0.75 of 0.7"
    about["counters"]["evaluated"] = [3, 0.75, 0.0]  # of fewer games than were asked for
    path.write_text(json.dumps(about | {"checksum": checksum_of(about)}))
    assert already_over(folder, StopRule(until_evaluated=0.7)) == ""
    path.write_text(before)


@pytest.mark.slow
@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_evaluation_keeps_and_saves_the_games_that_are_over(
    number: signal.Signals, code: int, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained[0]
    complete = next((folder / "eval").glob("*-training-50-*.json"))
    before = complete.read_bytes()

    @contextmanager
    def interrupting(*_: object) -> Iterator[Callable[[float, float], None]]:
        def bar(done: float, _: float) -> None:
            if done >= 20:
                signal.raise_signal(number)

        yield bar
        signal.raise_signal(number)  # pressed again while the games are collected

    monkeypatch.setattr(Printer, "progress", interrupting)
    ended, said, _ = colobus("eval", folder, "--episodes", 1_000_000)
    assert ended == code
    path = Path(said.partition("saved in ")[2].splitlines()[0])
    assert path.parent == complete.parent
    name = complete.stem.replace("-50-", "-1000000-")
    assert path.stem.startswith(f"{name}-interrupted")  # the second time with a number
    data = json.loads(path.read_text())
    assert 20 <= data["episodes"] == len(data["scores"]) < 1_000_000 == data["episodes_asked"]
    assert set(data["lengths"]) == {9}  # none was cut off
    assert f"interrupted after {data['episodes']} of 1000000 games" in said
    assert complete.read_bytes() == before


@pytest.mark.slow
def test_scores_that_cannot_be_saved_are_printed(trained: Trained, tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    shutil.copytree(trained[0], run_folder, ignore=shutil.ignore_patterns("eval"))
    (run_folder / "eval").write_text("in the way")
    code, out, err = colobus("eval", run_folder, "--episodes", 3, "--json")
    assert code == 1
    assert len(json.loads(out)["scores"]) == 3
    assert err.splitlines()[-1] == f"colobus: {run_folder / 'eval'}: File exists"


@pytest.mark.slow
def test_an_end_that_fails_has_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = ColobusError("cannot write film.mp4: No space left on device")
    monkeypatch.setattr("colobus.evaluation.films.player.record", Mock(side_effect=full))
    folder = tmp_path / "run"
    code, out, err = colobus("train", "catch", "--steps", 600, "--out", folder, "--json")
    assert code == 2
    assert err.splitlines()[-1] == f"colobus: {full}"
    assert f"train --resume {folder}" in err
    summary = json.loads(out)
    assert summary["evaluation"]["episodes"] == 50
    assert Path(summary["curve"]).is_file()
    assert "film" not in summary


@pytest.mark.slow
@pytest.mark.usefixtures("usual_signals")
def test_a_signal_while_an_agent_loads(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Mock(side_effect=lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr("colobus.evaluation.agent.load", stopped)
    code, _, err = colobus("eval", trained[0])
    assert (code, err) == (143, "colobus: stopped\n")


@pytest.mark.slow
def test_a_game_without_published_scores_is_one_sentence(trained: Trained) -> None:
    words = ("eval", trained[0], "--episodes", 3, "--compare")
    assert printed(*words).splitlines()[-2] == "no published scores for catch"
    code, out, err = colobus(*words, "--json")
    assert code == 0
    assert json.loads(out)["compare"] == []
    assert "no published scores for catch" in err


def test_show_counts_roles_and_memory_and_starts_nothing(here: Path) -> None:
    shown = told("show", "pong", "--actors", 3, "--servers", 2, "--steps", 1234)
    assert shown["roles"] == {
        "Tracker": 1,
        "TrajectoryQueue": 1,
        "ParameterServer": 2,
        "Actor": 3,
        "Learner": 1,
    }
    assert shown["stop"] == "until 1,234 steps"
    assert shown["settings"]["shape"]["actors"] == 3
    # small torso on 42x42: 16 filters 5x5 on 4, 32 filters 4x4 on 16, 32*5*5 to 256, layer norm,
    # 6 actions and a value
    convolutions = 16 * (4 * 25 + 1) + 32 * (16 * 16 + 1)
    assert shown["parameters"] == convolutions + 801 * 256 + 2 * 256 + 257 * 7
    memory = shown["memory_mib"]
    vector = 4 * shown["parameters"] / 2**20
    assert memory["parameters"] == pytest.approx((2 + 2 + 2 + 3) * vector, abs=0.1)
    assert memory["emulators"] == 3 * 8 * 2.0
    assert memory["trajectories"] == pytest.approx(5 * 3 * 8 * 132 * 42**2 / 2**20, abs=0.1)
    stacks = 3 * 8 * 129 * 4 * 42**2  # of all observations, which the learner lays out
    assert memory["stacks"] == pytest.approx(4 * stacks / 2**20, abs=0.1)
    most, start = memory.pop("most at once"), memory.pop("input statistics, at the start only")
    assert start == pytest.approx(2 * 4096 * 42**2 / 2**20, abs=0.1)
    held = memory["libraries"] + memory["emulators"]
    assert most == pytest.approx(max(sum(memory.values()), held + start), abs=0.5)
    assert list(here.iterdir()) == []
    text = printed("show", "catch")
    for word in ("server-0", "actor-0 … 1", "learner-0", "gamma 0.99", "until score 0.95"):
        assert word in text
    assert "bytes an update" not in text


def test_processes_are_spread_over_hosts_that_are_only_named() -> None:
    words = ("--workers", 4, "--servers", 2, "--place", "servers=n[1-2] workers=n[3-4]", "--nodes")
    assert told("show", "dba3c-catch", *words)["nodes"] == {
        "n1": ["server-0"],
        "n2": ["server-1"],
        "n3": ["worker-0", "worker-2"],
        "n4": ["worker-1", "worker-3"],
        "the host of the command": ["tracker"],
    }


@pytest.mark.slow
def test_show_scales_with_the_workers() -> None:
    shown = told("show", "dba3c-pong", "--workers", 3, "--actors", 2)
    assert shown["roles"] == {
        "Tracker": 1,
        "ParameterServer": 2,
        "TrajectoryQueue": 3,
        "PublishedParameters": 3,
        "Actor": 6,
        "Learner": 3,
    }
    assert shown["stop"] == "until score 18 (mean of 50 games) or 3,000,000 steps"
    padded = -(-shown["parameters"] // 64) * 64
    assert shown["bytes_per_update"] == 2 * 4 * padded  # a gradient up, parameters down
    memory, vector = shown["memory_mib"], 4 * padded / 2**20
    # servers: slice and Adam's two, twice (put aside), two snapshots, two gradients that wait;
    # worker: values and gradients, two snapshots in the cache, a copy for each actor
    copies = 2 + (3 + 3 + 2 + 2) + 3 * (2 + 2 + 2)
    assert memory["parameters"] == pytest.approx(copies * vector, abs=0.1)
    assert memory["emulators"] == 3 * 2 * 8 * 2.0
    window = 24 * 42**2 / 2**20  # 20 steps and 4 frames
    assert memory["trajectories"] == pytest.approx(5 * 3 * 2 * 8 * window, abs=0.1)
    assert shown["notes"] == []


def test_show_prints_the_published_command() -> None:
    flat = " ".join(printed("show", "dba3c-breakout-paper").replace("│", " ").split())
    for words in (
        "game breakout, size 84, colour True",
        "torso ba3c, width 128, hidden linear",
        "optimizer adam, beta1 0.8, beta2 0.75",
        "workers 64, quorum 60",
        "batch 32, keep_every 1000, actors 1, games 10, length 5, servers 4",
        "4 ParameterServer, 64 TrajectoryQueue, 64 PublishedParameters, 64 Actor, 64 Learner",
        "parameters: 331,909",
        "a learner moves 2,655,744 bytes an update",
        "evaluated score 300",
        "30 steps instead of 32",
    ):
        assert words in flat, words
    differs = [note for note in NOTES["dba3c-breakout-paper"] if note.startswith("differs: ")]
    assert flat.count("differs: ") == len(differs) == 5


def test_an_evaluation_with_published_scores_is_a_table() -> None:
    noop = PROTOCOLS["noop"]
    settings = noop.settings(GameSettings(game="breakout"))
    played: dict[str, Any] = {"games": [10.0, 22.2], "mean": 16.1, "human_normalised": 50.0}
    evaluation = SimpleNamespace(protocol=noop, settings=settings, steps=2_500_000, **played)
    file = io.StringIO()
    table = table_beside(stand_in(evaluation), compare(settings))
    Console(file=file, width=100).print(table, soft_wrap=False)
    rows = [tuple(re.split(r"\s{2,}", line.strip())) for line in file.getvalue().splitlines()]
    assert rows[2] == ("this agent", "noop, 2 games", "10.0 M", "16.1", "50.0")
    for row in (
        ("DQN, 2015", "no-ops, 5 min", "200 M", "401.2", "1,387.2", "yes"),
        ("Rainbow", "no-ops, 30 min", "200 M", "417.5", "1,443.8", "except the limit"),
        ("Gorila", "human starts", "6 days", "313.0", "1,184.1", "no: human starts"),
        ("PPO", "training", "40 M", "274.8", "948.3", "no: while learning"),
        ("DBA3C", "Gym -v0", "350.0", "1,209.4", "no: Gym -v0"),
    ):
        assert row in rows
