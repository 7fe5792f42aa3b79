"""Flags and arguments of other libraries are answered with ours, those without effect refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.cli.experiment_flags import flag_in_group, resolve
from colobus.cli.flags import flag_of, flags_of
from colobus.cli.main import COMMANDS
from colobus.cli.train import Train
from colobus.experiment.aliases import others
from colobus.experiment.presets import FAMILIES, PRESETS, preset
from colobus.experiment.settings import ALGORITHMS, Experiment, argument, groups_of
from helpers.hostile import make_run
from helpers.launching import colobus as command
from helpers.launching import printed, refused


def arguments() -> set[str]:
    """Return the names in Python of all settings with any algorithm."""
    found = {"seed", "deterministic"}
    for algorithm in ALGORITHMS.values():
        groups = groups_of(Experiment(algorithm=algorithm())).items()
        found |= {argument(name, of) for of, group in groups for name in vars(group)}
    return found


def test_all_of_our_names_exist_and_none_of_theirs_does() -> None:
    more = {"out", "episodes", "resume", "cores", "seeds", "track"}  # of commands
    known, settings = arguments() | more, others("setting")
    for name, (ours, note) in settings.items():
        mentioned = {*ours.split(), *re.findall(r"\{(\w+)\}", note)}
        assert mentioned <= known, name
        assert name == name.lower()
    assert not settings.keys() & (arguments() - {"game"})  # which has no flag
    flags = {*flags_of(Train, flag_in_group)} - {"--game"}
    assert not {flag_of(name) for name in settings} & flags
    assert {family for family, _ in others("algorithm").values()} - {""} <= FAMILIES.keys()
    assert {ours.split()[0].strip(",") for ours, _ in others("command").values()} <= {*COMMANDS}
    assert not others("command").keys() & {*COMMANDS}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train pong --learning-rate 1e-3", "here it is --lr;"),
        ("train pong --learning_rate=1e-3", "here it is --lr;"),
        ("train pong --num-envs 8", "here it is --games and --actors (each of so many actors"),
        ("train pong --env-id Pong-v5", "the game is named first, such as pong"),
        ("train pong --preset vector", "the preset is named first, such as: vector --env Acro"),
        ("train dqn-pong --clip-coef 0.1", "here it is --clip (with another algorithm);"),
        ("train pong --n-steps 9", "(of a rollout; n-step returns have --n, with A3C, DQN and IQN"),
        ("train pong --anneal-lr", "here it is --lr-end (the rate goes from --lr to it over --an"),
        ("train pong -v", "a run tells what it does without being asked"),
        ("show pong --exp-name x", "here it is --out (of colobus train); see"),
        ("eval x --n-eval-episodes 1", "here it is --episodes"),
        ("train pong --nam x", "nearest known: --name"),
        ("train pong --algorith x", "nearest known: --algorithm"),
        ("train pong --fro x", "nearest known: --from"),
    ],
)
def test_an_unknown_flag_is_answered_with_ours(words: str, said: str) -> None:
    err = refused(*words.split())
    assert re.match(r"colobus: unknown flag '--?[\w-]+': ", err)
    assert said in err


def test_only_flags_that_the_command_has_are_named() -> None:
    assert "--called" not in refused("train", "pong", "--calle", "x")
    assert "here it is" not in refused("eval", "x", "--learning-rate", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sac", "sac is not here; PPO is, as in ppo-pong"),
        ("train sac", "sac is not here; PPO is, as in ppo-pong"),
        ("train TD3-CartPole-v1", "td3 is not here; PPO is, as in ppo-CartPole-v1"),
        ("train qr-dqn-space_invaders", "qr-dqn is not here; DQN is, as in dqn-space_invaders"),
        ("show recurrent-ppo", "PPO is, as in ppo-pong"),
        ("train impala", "name a game in the same word, such as impala-pong"),
        ("train muzero-pong", "muzero is not here; colobus games lists what is"),
        ("pong", "to learn it: colobus train pong"),
        ("gelada", "the command here is train (Gelada is Colobus now)"),
        ("--steps", "the command comes first, such as: colobus train pong --steps"),
        ("trian", "nearest known: train"),
    ],
)
def test_a_word_of_another_program_is_answered_with_ours(words: str, said: str) -> None:
    assert said in refused(*words.split())
    if "as in " in said and said.endswith("pong"):
        preset(said.rpartition(" ")[2])


def test_help_and_version_are_words_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--version", "-V", "version", "--help", "help", "help games", "games --help")
    said = {words: printed(*words.split()) for words in asked}
    assert said["--version"] == said["-V"] == said["version"] == f"colobus {colobus.__version__}\n"
    assert said["--help"] == said["help"] != said["help games"] == said["games --help"]
    monkeypatch.chdir(tmp_path)
    make_run(Path("run-1"))
    assert "to evaluate this run: " in refused("run-1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "steps"),
    [
        *(("20000", 20_000), ("1e6", 10**6), ("1.5e3", 1500), ("1E3", 1000), ("2M", 2 * 10**6)),
        *(("500k", 500_000), ("0.5K", 500), ("1_000_000", 10**6), ("1,000,000", 10**6)),
        *(("1.5m", 1_500_000), ("3b", 3 * 10**9), ("2G", 2 * 10**9), ("1000.0", 1000)),
    ],
)
def test_whole_numbers_as_people_write_them(given: str, steps: int) -> None:
    assert resolve(Train, "train", ["catch", "--steps", given]).experiment.stop.steps == steps
    wanted = resolve(Train, "train", ["catch", f"--anneal-steps={given}", "--games", "0.02k"])
    assert getattr(wanted.experiment.algorithm, "anneal_steps", 0) == steps
    assert wanted.experiment.shape.games == 20


NO_NUMBERS = "1.5 1e-3 0.0001k 1,5 1,0000 nan inf 1e999999999999 2MM k x"


@pytest.mark.slow
@pytest.mark.parametrize("given", ["", *NO_NUMBERS.split()])
def test_no_whole_number_is_one_line(given: str) -> None:
    for words in ("train catch --steps", "eval x --episodes", "show catch --games"):
        err = refused(*words.split(), given)
        assert f"{words.split()[2]} {given}: not a whole number, such as 20000, 1e6, 500k" in err


def test_whole_floats_from_python() -> None:
    experiment = colobus.preset("catch", steps=1e6, actors=4.0, minutes=3.0)
    assert (experiment.stop.steps, experiment.shape.actors) == (10**6, 4)
    assert isinstance(experiment.stop.steps, int)
    assert isinstance(experiment.stop.minutes, float)
    for value in (1.5, float("nan")):
        with pytest.raises(colobus.ColobusError, match=f"--steps {value}: must be a whole number"):
            colobus.train("catch", steps=value)


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        (colobus.preset, "learning_rate", "here it is lr$"),
        (colobus.train, "max_grad_norm", "here it is gradient_clip$"),
        (colobus.train, "save_dir", r"here it is out \(the folder of the run\)$"),
        (colobus.train, "n_jobs", "here it is cores$"),
        (colobus.train, "resume_or_strat", "nearest known: resume_or_start, "),
    ],
)
def test_arguments_in_python_too(call: Callable[..., object], given: str, said: str) -> None:
    with pytest.raises(colobus.ColobusError, match=f"^{given}: unknown setting; {said}"):
        call("catch", **{given: "x"})


def test_given_numbers_and_limits_are_not_rounded() -> None:
    assert "--gamma 1.0000001: must be at" in refused("show", "catch", "--gamma", "1.0000001")
    assert "at most 2,147,483,647" in refused("show", "catch", "--seed", "3000000000")


def test_attributes_of_the_module_too() -> None:
    for name, said in (
        ("PPO", r"'PPO'; here it is colobus\.train\('ppo-pong'\)"),
        ("evaluate_policy", r"here it is colobus\.evaluate\(agent\)"),
        ("nonsense", r"no attribute 'nonsense'$"),
    ):
        with pytest.raises(AttributeError, match=said):
            getattr(colobus, name)
    assert not others("attribute").keys() & {name.lower() for name in dir(colobus)}


def test_an_old_flag_works_and_says_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    for no, value in (("", True), ("no-", False)):
        flags = resolve(Train, "train", ["catch", f"--{no}graphs"]).flags
        assert flags.devices.cuda_graphs is value
        assert capsys.readouterr().err == f"colobus: --{no}graphs is --{no}cuda-graphs now\n"
    assert resolve(Train, "train", ["catch", "--cuda-graphs"]).flags.devices.cuda_graphs
    assert capsys.readouterr().err == ""


def test_an_old_argument_works_and_says_its_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given, lines = dict[str, Any](), list[str]()
    monkeypatch.setattr("colobus.training.run.train", lambda *_, **kwargs: given.update(kwargs))
    colobus.train("catch", graphs=False, log=lines.append, progress=False)
    assert not given["devices"].cuda_graphs
    assert lines == ["graphs: is called cuda_graphs now"]


def test_names_in_a_table_are_printed_as_they_are(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run)
    name = "[/b][link=http://example.org]\x1b[2Jred"
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"name": name}))
    code, out, err = command("show", run)
    assert (code, err) == (0, "")
    assert "[/b][link=http://example.org]?[2Jred" in "".join(out.split("\n"))
    assert "\x1b" not in out


ANNEALED = (
    "with --anneal-steps above 0 and --steps or --minutes (only --steps with --deterministic or "
    "--reduce group, which follow no clock)"
)
WITHOUT_EFFECT = {
    "with --workers or --learners": "pong --quorum 5; pong --asynchronous; pong --keep-every 9",
    "without --workers": "gorila-pong --replays 2",
    "without --learners": "gorila-pong --workers 0 --learners 2 --broadcast-every 5",
    "with --asynchronous": "dba3c-pong --max-staleness 5",
    "with --games 2 or more": "dqn-pong --games 1 --hold-after 9",
    "with APPO, PQN or A3C": "gorila-pong --batch 64; dqn-pong --ahead 2",
    "with an algorithm that learns from each step again": "pong --capacity 5000; a3c-pong --keep; "
    "catch --on ray --keep",
    "with --prioritized": "dqn-pong --alpha 0.5; dqn-pong --beta 0.5",
    "with --optimizer adam or radam": "pong --optimizer sgd --beta1 0.5; "
    "pong --optimizer rmsprop --beta2 0.5",
    "with --optimizer rmsprop or sgd": "pong --momentum 0.5",
    "with --optimizer rmsprop or adadelta": "pong --decay 0.5",
    "with another --optimizer than sgd": "pong --optimizer sgd --optimizer-epsilon 0.1",
    ANNEALED: "pong --minutes 9 --deterministic --anneal-share 0.5; "
    "pong --until-score 18 --anneal-share 0.5; "
    "pong --learners 2 --reduce group --actors 4 --minutes 9 --anneal-share 0.5; "
    "dba3c-pong --anneal-steps 0 --steps 9 --anneal-share 0.5",
    "without --tensor-clip": "dba3c-pong --tensor-clip 0.1 --gradient-clip 9",
    "without --lr-jumps": "dba3c-pong --lr-jumps 1M:0.1 --lr-end 0.2",
    "with --advantage vtrace": "pong --rho-bar 2; pong --c-bar 2; pong --pg-rho-bar 2",
    "with --policy-loss clip": "impala-pong --clip 0.1",
    "with --kl-coeff above 0": "pong --kl-target 0.1",
    "with --kl-adjust above 1": "pong --kl-adjust 1 --lr-max 0.1; pong --kl-adjust 1 --kl 0.1",
    "with --target-every above 0": "pong --ratio-cap 3; dqn-pong --target-every 0 --double; "
    "dqn-pong --target-every 0 --target-tau 0.1",
    "with --target-every above 0 and without --munchausen": "dqn-pong --munchausen 0.9 --double; "
    "dqn-pong --munchausen-end 0.9 --double",
    "with --returns n_step": "dqn-pong --n 3",
    "with --returns q_lambda": "gorila-catch --lam 0.5; gorila-catch --lam-end 0.9; "
    "gorila-catch --munchausen 0.9",
    "with --returns q_lambda, and --munchausen or --munchausen-end above 0": "dqn-pong "
    "--temperature 0.1; breakout --returns n_step --temperature 0.1",
    "with --munchausen above 0": "pqn-pong --temperature 0.1",
    "with --explore ladder": "dqn-pong --ladder-base 0.5",
    "with --explore schedule": "apex-pong --epsilon-end 0.5",
    "with --values histograms or quantiles": "dqn-pong --atoms 21; pqn-pong --atoms 21; "
    "pong --atoms 21",
    "with --values numbers": "dqn-pong --values quantiles --error squared",
    "in Atari games": "catch --sticky 0.25; catch --no-fire-on-life-loss",
    "in a game of several agents": "pong --policies separate",
    "with --recurrent lstm": "catch --sequence 8",
    "with a --torso of convolutions": "catch --conv-init normal",
    "with --autoencoder": "pong --autoencoder-weight 2",
    "with --recorder": "pong --record-length 9",
    "with --on ray": "pong --silence 9; bench pong --per-process 2",
    "with --record": "follow RUN --no-record --record-length 9",
}
"""Words of colobus train, if no other command is named, by what their last flag needs."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [(words, what) for what, runs in WITHOUT_EFFECT.items() for words in runs.split("; ")],
)
def test_a_flag_without_an_effect_is_refused(words: str, what: str) -> None:
    train = [] if words.split()[0] in COMMANDS else ["train"]
    last = words[words.rindex("--") :]
    said = refused(*train, *words.split())
    assert said.startswith(f"colobus: {last}: has an effect only {what}")


BENCH = {
    "pong --steps 5": "--steps: has no effect in colobus bench",
    "pong --checkpoint-seconds 5": "--checkpoint-seconds: has no effect in colobus bench",
    "pong --evaluator": "--evaluator: has no effect in colobus bench",
    "pong --costs costs.json --act-with onnx": "--costs: measures torch on the CPU; leave ",
    "pong --costs costs.json --reduce group --learners 2": "--reduce group with --costs: ",
}


@pytest.mark.parametrize("words", BENCH)
def test_bench_refuses_what_has_no_effect_there(words: str) -> None:
    assert refused("bench", *words.split()).startswith(f"colobus: {BENCH[words]}")


def test_costs_are_not_measured_on_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    said = refused("bench", "dba3c-catch", "--costs", "costs.json")
    assert said.startswith("colobus: RAY_ADDRESS with --costs: it measures this machine")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *PRESETS,
        *(f"{family}-seaquest" for family in FAMILIES),
        "pong --advantage vtrace --rho-bar 2",
        "pong --recurrent lstm --stack 1",
        "catch --recurrent lstm --sequence 8",
        "catch --autoencoder latent --autoencoder-weight 2 --conv-init normal",
        "catch-pair --policies separate --recurrent lstm",
        "pong --advantage vtrace --target-every 2 --ratio-cap 3",
        "pong --kl-adjust 1 --kl-coeff 1 --kl-target 0.1 --lr-end 0 --anneal-stages 3",
        "pong --broadcast-every 5",
        "pong --optimizer rmsprop --momentum 0.5 --decay 0.9",
        "dqn-pong --prioritized --alpha 0.5",
        "dqn-pong --returns n_step --n 3",
        "breakout --returns n_step --double",
        "dqn-pong --values histograms --atoms 20 --munchausen 0.9 --temperature 0.1 --lam-end 0.7",
        "dqn-pong --munchausen-end 0.9 --temperature 0.1",
        "pqn-pong --values quantiles --atoms 8 --duelling --gamma-end 0.995 --longest-random 9",
        "dba3c-pong --asynchronous --max-staleness 5",
        "gorila-pong --workers 0 --learners 2 --actors 2 --replays 2",
    ],
)
def test_presets_and_flags_with_what_they_need_are_taken(words: str) -> None:
    printed("show", *words.split())
