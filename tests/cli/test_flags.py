"""Flags: what help says of them, what is answered to those of others, and which are refused."""

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
from colobus.cli.show import parts_of
from colobus.cli.train import Train
from colobus.envs.make import known_games
from colobus.experiment.aliases import others
from colobus.experiment.presets import FAMILIES, PRESETS, preset
from colobus.experiment.settings import ALGORITHMS, Experiment, argument, groups_of
from helpers.hostile import make_run
from helpers.launching import colobus as command
from helpers.launching import printed, refused, told
from helpers.players import write_run


def test_all_of_our_names_exist_and_none_of_theirs_does() -> None:
    own = {"seed", "deterministic"}  # settings with any algorithm, as in Python
    for algorithm in ALGORITHMS.values():
        groups = groups_of(Experiment(algorithm=algorithm())).items()
        own |= {argument(name, of) for of, group in groups for name in vars(group)}
    known = own | {"out", "episodes", "resume", "cores", "seeds", "track"}  # of commands
    settings = others("setting")
    for name, (ours, note) in settings.items():
        mentioned = {*ours.split(), *re.findall(r"\{(\w+)\}", note)}
        assert mentioned <= known, name
        assert name == name.lower()
    assert not settings.keys() & (own - {"game"})  # which has no flag
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


def test_help_and_version_are_words_too(here: Path) -> None:
    asked = ("--version", "-V", "version", "--help", "help", "help games", "games --help")
    said = {words: printed(*words.split()) for words in asked}
    assert said["--version"] == said["-V"] == said["version"] == f"colobus {colobus.__version__}\n"
    assert said["--help"] == said["help"] != said["help games"] == said["games --help"]
    assert "unknown command 'gmes': nearest known: games" in refused("help", "gmes")
    make_run(here / "run-1")
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
    "where it differs from --munchausen 0": "dqn-pong --munchausen-end 0",
    "where it differs from --gamma 0.9": "dqn-pong --gamma 0.9 --gamma-end 0.9",
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
        "breakout --munchausen-end 0",
        "pqn-pong --values quantiles --atoms 8 --duelling --gamma-end 0.995 --longest-random 9",
        "dba3c-pong --asynchronous --max-staleness 5",
        "gorila-pong --workers 0 --learners 2 --actors 2 --replays 2",
    ],
)
def test_presets_and_flags_with_what_they_need_are_taken(words: str) -> None:
    printed("show", *words.split())


def in_a_line(said: str) -> str:
    """Return what a panel says, without its frame."""
    return " ".join(said.replace("│", " ").split())


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["--help", "--help-all"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_no_default_is_none(
    command: str, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed(command, ask)
    assert max(map(len, shown.splitlines())) <= 80
    text = in_a_line(shown)
    assert text.startswith(f"usage: colobus {command} ")
    for empty in ("(default: None)", "(default: )", "(default: '')"):
        assert empty not in text


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "show", "bench"])
def test_help_names_the_preset_of_its_defaults(command: str) -> None:
    for words, name in (([], "pong"), (["dqn-breakout"], "dqn-breakout")):
        text = in_a_line(printed(command, *words, "--help"))
        assert f"The defaults are those of {name}; with another game or preset there are" in text
        assert f"colobus {command} breakout --help" in text
        assert "(default: None)" not in text


@pytest.mark.parametrize("words", [["train", "pong"], ["show", "dqn-pong"], ["bench"]])
def test_help_is_short_and_help_all_has_everything(words: list[str]) -> None:
    short, everything = (
        re.findall(r"^\W{2}(?:-h, )?(--[a-z][\w-]*)", printed(*words, ask), re.M)
        for ask in ("--help", "--help-all")
    )
    assert 12 <= len(short) <= 25
    assert {"--help", "--steps", "--lr", "--seed", "--actors"} < {*short} < {*everything}
    assert len(everything) > 90


OWN = {
    "plan": "--nodes --link --costs --changes",
    "slurm": "--nodes --time --partition --account --gpus-per-node --file --submit --out",
    "bench": "--seconds --profile --costs --on",
    "show": "--nodes",
    "train": "--out --on --resume --seeds",
}


@pytest.mark.parametrize("command", OWN)
def test_help_has_the_flags_that_only_this_command_has(command: str) -> None:
    text = printed(command, "--help")
    assert {*OWN[command].split()} <= {*re.findall(r"--[a-z][\w-]*", text)}
    assert "--host-cores" not in text


@pytest.mark.parametrize("ask", ["--help", "--help-all"])
def test_help_tells_of_no_flag_that_a_job_cannot_have(ask: str) -> None:
    text = printed("slurm", ask)
    found = re.findall(r"^\W{2}(--[a-z][\w-]*)", text, re.M)
    assert "--time" in found
    assert not {"--resume", "--resume-or-start", "--seeds", "--address"} & {*found}
    assert "--on {" not in text


@pytest.mark.slow
def test_help_still_prints_defaults_that_say_something(tmp_path: Path) -> None:
    text = in_a_line(printed("train", "pong", "--help"))
    for said in ("(default: 1000000)", "(default: 18.0)", "(default: 0.002)", "(default: 1)"):
        assert said in text
    write_run(tmp_path)
    text = in_a_line(printed("train", "--resume", tmp_path, "--help"))
    assert "The defaults are those of the run." in text


@pytest.mark.parametrize("words", [["watch", "runs"], ["eval", "x"], ["train", "breakout"]])
def test_help_has_the_words_that_were_given_too(words: list[str]) -> None:
    alone, there = printed(words[0], "--help"), printed(*words, "--help")
    assert "positional arguments" in there
    assert there == alone or words[0] == "train"  # which has the defaults of what is named


def test_every_listed_name_can_be_learned() -> None:
    said = told("games")
    assert list(said) == ["Atari games", "small games", "presets", "families"]
    assert len(said["Atari games"]) > 100
    listed = [name for kind in list(said)[:3] for name in said[kind]]
    assert len(listed) == len(set(listed))
    assert set(listed) == {*known_games(), *PRESETS}
    for name in (*said["Atari games"][:3], *said["small games"], *said["presets"]):
        preset(name)
    for family in said["families"]:
        preset(f"{family}-seaquest")
    assert said["families"] == list(FAMILIES)


def test_the_list_is_for_people_and_can_be_narrowed() -> None:
    text = printed("games")
    for words in ("space_invaders", "dqn-", "train CartPole-v1"):
        assert words in text
    text = printed("games", "Pong")
    assert "Atari games (1):" in text
    assert "gorila-pong" in text
    assert "seaquest" not in text
    assert "no game or preset contains 'tetris-3'" in printed("games", "tetris-3")


ON = {
    "pong": {"PPO's clipped loss", "several epochs", "adaptive rate"},
    "impala-seaquest": {"V-trace"},
}


@pytest.mark.parametrize("name", ON)
def test_the_parts_that_are_on(name: str) -> None:
    (line,) = re.findall(r"^parts: .*?(?=^parameters: )", printed("show", name), re.M | re.S)
    on, _, off = re.sub(r"\s+", " ", line).strip().partition("; off: ")
    parts = parts_of(preset(name)[0])
    assert set(re.findall(r"(?:parts: |, )(.+?) \(--", on)) == ON[name]
    assert set(off.split(", ")) == {part["name"] for part in parts} - ON[name]
    assert "--advantage" in {part["flag"].split()[0] for part in parts}


def test_every_part_of_appo_can_be_switched_on_and_off() -> None:
    every = {part["name"] for part in parts_of(PRESETS["pong"])}
    states = {(part["name"], part["on"]) for name in PRESETS for part in parts_of(PRESETS[name])}
    assert {name for name, on in states if on} == every
    assert {name for name, on in states if not on} == every
    assert "parts: " not in printed("show", "dqn-pong")  # which is another algorithm
    assert told("show", "dqn-pong")["parts"] == []
