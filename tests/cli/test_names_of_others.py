"""Flags and arguments that people know from other libraries are answered with ours."""

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
from colobus.experiment.presets import FAMILIES, preset
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
        ("pong --n-envs 8", "here it is --games and --actors"),
        ("pong --total-timesteps 1000", "here it is --steps;"),
        ("--env-id Pong-v5", "the game is named first, such as pong"),
        ("--preset vector", "the preset is named first, such as: vector --env Acrobot-v1"),
        ("pong --ent-coef 0.01", "here it is --entropy and --entropy-end;"),
        ("dqn-pong --clip-coef 0.1", "here it is --clip (with another algorithm);"),
        ("pong --buffer-size 9", "here it is --capacity (with DQN);"),
        (
            "pong --n-steps 9",
            "(of a rollout; n-step returns have --n, with A3C, DQN and IQN)",
        ),
        ("pong --anneal-lr", "here it is --lr-end (the rate goes from --lr to it over --anneal-st"),
        ("pong --eval-freq 9", "here it is --evaluator (evaluates each new checkpoint, see --ch"),
        ("pong --verbose 1", "a run tells what it does without being asked"),
        ("pong -v", "a run tells what it does without being asked"),
        ("pong --quiet", "> /dev/null hides what is told"),
        ("pong --version", "colobus --version prints it"),
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
        ("train ddpg", "PPO is, as in ppo-pong"),
        ("train TD3-CartPole-v1", "td3 is not here; PPO is, as in ppo-CartPole-v1"),
        ("train rainbow-seaquest", "rainbow is not here; DQN is, as in dqn-seaquest"),
        ("train qr-dqn-space_invaders", "qr-dqn is not here; DQN is, as in dqn-space_invaders"),
        ("show recurrent-ppo", "PPO is, as in ppo-pong"),
        ("train impala", "name a game in the same word, such as impala-pong"),
        ("train muzero-pong", "muzero is not here; colobus games lists what is"),
        ("pong", "to learn it: colobus train pong"),
        ("dqn-seaquest", "to learn it: colobus train dqn-seaquest"),
        ("learn", "the command here is train"),
        ("enjoy", "the command here is play"),
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


def test_help_and_version_are_words_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--version", "-V", "version", "--help", "help", "help games", "games --help")
    said = {words: printed(*words.split()) for words in asked}
    assert said["--version"] == said["-V"] == said["version"] == f"colobus {colobus.__version__}\n"
    assert said["--help"] == said["help"] != said["help games"] == said["games --help"]
    monkeypatch.chdir(tmp_path)
    make_run(Path("run-1"))
    assert "to evaluate this run: " in refused("run-1")


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


@pytest.mark.parametrize(
    "given",
    [
        "1.5",
        "1e-3",
        "0.0001k",
        "1,5",
        "1,0000",
        "nan",
        "inf",
        "1e999999999999",
        "2MM",
        "k",
        "",
        "x",
    ],
)
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


NAME = "[/b][link=http://example.org]\x1b[2Jred"


def spoil(run: Path, group: str, name: str, value: str) -> None:
    data = json.loads((run / "config.json").read_text())
    place = data[group] if group else data
    place[name] = value
    (run / "config.json").write_text(json.dumps(data))


def test_names_in_a_table_are_printed_as_they_are(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run)
    spoil(run, "", "name", NAME)
    code, out, err = command("show", run)
    assert (code, err) == (0, "")
    assert "[/b][link=http://example.org]?[2Jred" in "".join(out.split("\n"))
    assert "\x1b" not in out


def test_an_unknown_game_is_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run)
    spoil(run, "games", "game", "\x1b[2Jponk")
    said = refused("show", run)
    assert "config.json: unknown game '" in said
    assert "\x1b" not in said
