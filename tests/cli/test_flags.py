"""Flags and arguments of other libraries are answered with ours, those without effect refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.cli.experiment_flags import flag_in_group, resolve
from colobus.cli.flags import flag_of, flags_of
from colobus.cli.main import COMMANDS
from colobus.cli.train import Train
from colobus.experiment.aliases import others
from colobus.experiment.check import check_effect
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
        ("pong --learning-rate 1e-3", "here it is --lr;"),
        ("pong --learning_rate=1e-3", "here it is --lr;"),
        ("pong --num-envs 8", "here it is --games and --actors (each of so many actors plays so"),
        ("--env-id Pong-v5", "the game is named first, such as pong"),
        ("--preset vector", "the preset is named first, such as: vector --env Acrobot-v1"),
        ("dqn-pong --clip-coef 0.1", "here it is --clip (with another algorithm);"),
        ("pong --n-steps 9", "(of a rollout; n-step returns have --n, with A3C, DQN and IQN)"),
        ("pong --anneal-lr", "here it is --lr-end (the rate goes from --lr to it over --anneal-st"),
        ("pong -v", "a run tells what it does without being asked"),
    ],
)
def test_a_flag_of_another_library_is_answered_with_ours(words: str, said: str) -> None:
    first = [] if words.startswith("--") else [words.split()[0]]
    rest = words.split()[len(first) :]
    err = refused("train", *(first or ["pong"]), *rest)
    assert re.match(r"colobus: unknown flag '--?[\w-]+': ", err)
    assert said in err


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
def test_a_word_of_another_program_is_answered_with_ours(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.cli.main.program", lambda: "colobus")
    assert said in refused(*words.split())
    if "as in " in said and said.endswith("pong"):
        preset(said.rpartition(" ")[2])


def test_only_flags_that_there_are_come_near() -> None:
    for word, near in (("--nam", "--name"), ("--algorith", "--algorithm"), ("--fro", "--from")):
        assert f"nearest known: {near}" in refused("train", "pong", word, "x")
    assert "--called" not in refused("train", "pong", "--calle", "x")


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


def test_commands_that_train_nothing_do_not_name_what_they_lack() -> None:
    assert "here it is" not in refused("eval", "x", "--learning-rate", "1")
    assert "here it is --episodes" in refused("eval", "x", "--n-eval-episodes", "1")


def test_arguments_in_python_too() -> None:
    with pytest.raises(
        colobus.ColobusError, match=r"^learning_rate: unknown setting; here it is lr$"
    ):
        colobus.preset("pong", learning_rate=1e-3)
    said = r"^max_grad_norm: unknown setting; here it is gradient_clip$"
    with pytest.raises(colobus.ColobusError, match=said):
        colobus.train("catch", max_grad_norm=0.5)
    for given, said in (
        ("save_dir", r"here it is out \(the folder of the run\)$"),
        ("n_jobs", r"here it is cores$"),
        ("resume_or_strat", r"nearest known: resume_or_start, "),
    ):
        wrong: dict[str, Any] = {given: "x"}
        with pytest.raises(colobus.ColobusError, match=said):
            colobus.train("catch", **wrong)


def test_a_command_without_a_flag_says_whose_it_is() -> None:
    assert "here it is --out (of colobus train); see" in refused("show", "pong", "--exp-name", "x")


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
    for old, new, value in (
        ("--no-graphs", "--no-cuda-graphs", False),
        ("--graphs", "--cuda-graphs", True),
    ):
        assert resolve(Train, "train", ["catch", old]).flags.devices.cuda_graphs is value
        assert capsys.readouterr().err == f"colobus: {old} is {new} now\n"
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


WORKERS = "with --workers or --learners"
LEARNING_AGAIN = "with an algorithm that learns from each step again"

REFUSED = {
    "train pong --quorum 5": f"--quorum 5: {WORKERS}",
    "train pong --asynchronous": f"--asynchronous: {WORKERS}",
    "train pong --keep-every 9": f"--keep-every 9: {WORKERS}",
    "train gorila-pong --replays 2": "--replays 2: without --workers",
    "train gorila-pong --batch 64": "--batch 64: with APPO, PQN or A3C",
    "train dba3c-pong --max-staleness 5": "--max-staleness 5: with --asynchronous",
    "train pong --optimizer sgd --beta1 0.5": "--beta1 0.5: with --optimizer adam or radam",
    "train pong --optimizer rmsprop --beta2 0.5": "--beta2 0.5: with --optimizer adam",
    "train pong --momentum 0.5": "--momentum 0.5: with --optimizer rmsprop or sgd",
    "train pong --decay 0.5": "--decay 0.5: with --optimizer rmsprop or adadelta",
    "train pong --optimizer sgd --optimizer-epsilon 0.1": "--optimizer-epsilon 0.1: with another "
    "--optimizer than sgd",
    "train dqn-pong --alpha 0.5": "--alpha 0.5: with --prioritized",
    "train dqn-pong --ahead 2": "--ahead 2: with APPO, PQN or A3C",
    "train dqn-pong --beta 0.5": "--beta 0.5: with --prioritized",
    "train pong --capacity 5000": f"--capacity 5000: {LEARNING_AGAIN}",
    "train a3c-pong --keep": f"--keep: {LEARNING_AGAIN}",
    "train pong --rho-bar 2": "--rho-bar 2: with --advantage vtrace",
    "train pong --c-bar 2": "--c-bar 2: with --advantage vtrace",
    "train pong --pg-rho-bar 2": "--pg-rho-bar 2: with --advantage vtrace",
    "train pong --ratio-cap 3": "--ratio-cap 3: with --target-every above 0",
    "train pong --kl-target 0.1": "--kl-target 0.1: with --kl-coeff above 0",
    "train pong --kl-adjust 1 --lr-max 0.1": "--lr-max 0.1: with --kl-adjust above 1",
    "train impala-pong --clip 0.1": "--clip 0.1: with --policy-loss clip",
    "train gorila-pong --workers 0 --learners 2 --broadcast-every 5": "--broadcast-every 5: "
    "without --learners",
    "train pong --kl-adjust 1 --kl 0.1": "--kl 0.1: with --kl-adjust above 1",
    "train dba3c-pong --tensor-clip 0.1 --gradient-clip 9": "--gradient-clip 9: without "
    "--tensor-clip",
    "train dba3c-pong --lr-jumps 1M:0.1 --lr-end 0.2": "--lr-end 0.2: without --lr-jumps",
    "train dqn-pong --n 3": "--n 3: with --returns n_step",
    "train gorila-catch --lam 0.5": "--lam 0.5: with --returns q_lambda",
    "train dqn-pong --ladder-base 0.5": "--ladder-base 0.5: with --explore ladder",
    "train apex-pong --epsilon-end 0.5": "--epsilon-end 0.5: with --explore schedule",
    "train dqn-pong --target-every 0 --target-tau 0.1": "--target-tau 0.1: with --target-every",
    "train dqn-pong --target-every 0 --double": "--double: with --target-every above 0",
    "train dqn-pong --munchausen 0.9 --double": "--double: with --target-every above 0 and without",
    "train dqn-pong --munchausen-end 0.9 --double": "--double: with --target-every above 0 and",
    "train breakout --returns n_step --temperature 0.1": "--temperature 0.1: with --returns",
    "train dqn-pong --temperature 0.1": "--temperature 0.1: with --returns q_lambda, and --munchau",
    "train pqn-pong --temperature 0.1": "--temperature 0.1: with --munchausen above 0",
    "train gorila-catch --munchausen 0.9": "--munchausen 0.9: with --returns q_lambda",
    "train gorila-catch --lam-end 0.9": "--lam-end 0.9: with --returns q_lambda",
    "train dqn-pong --atoms 21": "--atoms 21: with --values histograms or quantiles",
    "train pqn-pong --atoms 21": "--atoms 21: with --values histograms or quantiles",
    "train pong --atoms 21": "--atoms 21: with --values histograms or quantiles",
    "train dqn-pong --values quantiles --error squared": "--error squared: with --values numbers",
    "train catch --sticky 0.25": "--sticky 0.25: in Atari games",
    "train catch --no-fire-on-life-loss": "--no-fire-on-life-loss: in Atari games",
    "train dqn-pong --games 1 --hold-after 9": "--hold-after 9: with --games 2 or more",
    "train catch --sequence 8": "--sequence 8: with --recurrent lstm",
    "train pong --policies separate": "--policies separate: in a game of several agents",
    "train catch --conv-init normal": "--conv-init normal: with a --torso of convolutions",
    "train pong --autoencoder-weight 2": "--autoencoder-weight 2: with --autoencoder",
    "train pong --record-length 9": "--record-length 9: with --recorder",
    "train pong --silence 9": "--silence 9: with --on ray",
    "bench pong --per-process 2": "--per-process 2: with --on ray",
    "follow RUN --no-record --record-length 9": "--record-length 9: with --record",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_a_flag_without_an_effect_is_refused(words: str) -> None:
    flag, _, what = REFUSED[words].partition(": ")
    assert refused(*words.split()).startswith(f"colobus: {flag}: has an effect only {what}")


@pytest.mark.parametrize("words", ["--steps 5", "--checkpoint-seconds 5", "--evaluator"])
def test_bench_refuses_what_a_run_leaves(words: str) -> None:
    said = refused("bench", "pong", *words.split())
    assert f"colobus: {words.split()[0]}: has no effect in colobus bench" in said


@pytest.mark.parametrize("words", ["--act-with onnx", "--reduce group --learners 2"])
def test_bench_refuses_what_has_no_effect_on_costs(words: str) -> None:
    said = refused("bench", "ppo-pong", "--costs", "costs.json", *words.split())
    assert "--costs" in said


def test_costs_are_not_measured_on_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    said = refused("bench", "dba3c-catch", "--costs", "costs.json")
    assert said.startswith("colobus: RAY_ADDRESS with --costs: it measures this machine")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PRESETS, *(f"{family}-seaquest" for family in FAMILIES)])
def test_no_preset_is_refused(name: str) -> None:
    experiment = preset(name)[0]
    check_effect(experiment, experiment)
    printed("show", name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
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
def test_a_flag_with_what_it_needs_is_taken(words: str) -> None:
    printed("show", *words.split())
