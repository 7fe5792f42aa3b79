"""Scripts of examples/ and of pages: each runs as it stands there, and does what it says."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import colobus
from colobus.algorithms.appo import Steps
from colobus.algorithms.batches import Minibatch
from colobus.cli import export
from colobus.envs.api import GameSettings
from colobus.envs.make import ENVIRONMENTS
from colobus.envs.playing import make_env
from colobus.experiment.presets import preset
from colobus.experiment.settings import ALGORITHMS
from colobus.runs.curves import read_metrics
from helpers.launching import python
from helpers.outputs import Given
from helpers.players import write_run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = EXAMPLES / "one_page.py"

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def own_tables() -> Iterator[None]:
    """What a script adds to a table is gone after the test."""
    with patch.dict(ALGORITHMS), patch.dict(ENVIRONMENTS):
        yield


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs an example with words in an empty folder, and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *words: str) -> str:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *words])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run


SCORE = r"-?\d\.\d\d"
RUN = rf"\d+ steps, score {SCORE}, folder runs"

SAID = {
    "first_agent": [f"{RUN}/catch-1", f"50 games: {SCORE} ± {SCORE}"],
    "settings_and_resume": [r"entropy weight 0\.01", rf"([6-9]|\d\d)\d\d{RUN}/catch-1"],
    "callbacks": [r"good enough after \d+ steps, \d+ games"],
    "play": ["score -?1"],
    "cluster": [f"{RUN}/dba3c-catch-1"],
}
"""Lines that examples print."""

CLUSTER = pytest.param("cluster", marks=pytest.mark.cluster)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(x for x in SAID if x != "cluster"), CLUSTER])
def test_an_example_says_what_came_of_it(name: str, run: Run) -> None:
    said = run(name)
    for line in SAID[name]:
        assert re.search(f"^{line}$", said, re.M), line
    assert name != "first_agent" or Path("runs/catch-1/film.gif").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["algorithm", "exploration", "games", "network", "environment", "gymnasium_environment"]
)
def test_a_part_of_ones_own_learns(part: str, run: Run) -> None:
    """It reaches its score before the end of its steps; environments are played afterwards."""
    said = run(part if part.startswith("gymnasium") else f"own_{part}")
    (steps,) = re.findall(rf"^(\d+) steps, score {SCORE}$", said, re.M)
    assert int(steps) < 60_000
    (folder,) = Path("runs").iterdir()
    assert list((folder / "checkpoints").iterdir())
    if part.endswith("environment"):
        assert mean_of_20(said) > 0.6


def fenced(file: str, language: str) -> list[str]:
    """Return the blocks of code in a language that stand on a page."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def mean_of_20(said: str) -> float:
    (mean,) = re.findall(r"^20 games: (-?\d+\.\d\d)$", said, re.M)
    return float(mean)


def test_held_games_do_not_steer_an_algorithm_of_ones_own() -> None:
    """Nor do old windows; and a forbidden action has no share of the policy."""
    text = (EXAMPLES / "own_algorithm.py").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.partition("\nresult =")[0], names)
    algorithm, ones = names["PolicyGradient"](), torch.ones(2)
    steps = Steps(
        actions=torch.tensor([0, 1]),
        log_probs=torch.tensor([0.0, -5.0]),
        advantages=ones,
        targets=ones,
        weights=ones,
        independent=torch.tensor([1.0, 0.0]),
        old=torch.empty(2, 0),
        allowed=torch.tensor([[True, False], [True, True]]),
    )
    net = Given(np.zeros((2, 2)), np.zeros(2))
    _, terms = algorithm.loss(net, Minibatch(torch.empty(2), steps), algorithm.start())
    assert terms["kl"].item() == 0.0


@pytest.mark.slow
def test_a_notebook_reads_runs_and_plots_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cells in order, and what the last line of each would show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((EXAMPLES / "read_runs.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    names: dict[str, Any] = {}
    shown: list[str] = []
    for cell in cells:
        text = "".join(cell["source"])
        exec(text, names)
        if (last := text.rpartition("\n")[2]).isidentifier():
            shown.append(names[last]._repr_html_())
    said = re.findall(r"^(catch-seed-\d): seed \d, [\d,]+ steps", capsys.readouterr().out, re.M)
    assert said == [f"catch-seed-{seed}" for seed in (1, 2, 3)]
    assert "catch, protocol training" in shown[0]
    assert "data:image/gif;base64," in shown[1]
    for file in ("curves.png", "losses.png", "catch.gif"):
        assert Path(file).stat().st_size > 1000
    names["plt"].close("all")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "least"),
    [
        ("catch", {"steps": 20_000, "deterministic": True}, 0.6),
        ("CartPole-v1", {"recurrent": "lstm", "random_steps": 64, "steps": 64}, 0.0),
    ],
    ids=["pictures", "a vector and a memory"],
)
def test_an_export_is_evaluated(name: str, settings: Any, least: float, run: Run) -> None:
    colobus.train(name, "run", log=lambda _line: None, **settings)
    assert export.main(["run", "--onnx", "--out", "policy.onnx"]) == 0
    said = run("evaluate_export", "policy.onnx", "run")
    assert name != "catch" or "catch ['LEFT', 'STAY', 'RIGHT']\n" in said
    assert mean_of_20(said) > least


@pytest.fixture
def sweep(here: Path) -> Callable[..., Any]:
    """Return what runs the sweep with changes in an empty folder, and returns its study."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def swept(changes: dict[str, str]) -> Any:
        text = (EXAMPLES / "sweep_optuna.py").read_text(encoding="utf-8")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        names: dict[str, Any] = {}
        exec(text, names)
        return names["study"]

    return swept


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Optuna and its database library
def test_a_sweep_by_optuna(sweep: Callable[..., Any]) -> None:
    study = sweep({})
    assert len(study.trials) == 4
    for trial in study.trials:
        config = Path(f"runs/trial-{trial.number}-1/config.json").read_text(encoding="utf-8")
        assert f'"lr": {trial.params["lr"]!r}' in config
        assert trial.state.name in ("COMPLETE", "PRUNED")
    assert study.best_trial.intermediate_values


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_hopeless_trial_is_pruned_by_the_callback(sweep: Callable[..., Any]) -> None:
    changes = {
        "steps=20_000": "steps=100_000_000",
        "MedianPruner(n_startup_trials=2)": "ThresholdPruner(lower=2.0)",
        "n_trials=4": "n_trials=1",
    }
    (trial,) = sweep(changes).trials
    assert trial.state.name == "PRUNED"
    assert trial.intermediate_values  # what was reported, until the run had ended


def logged(data: bytes) -> list[bytes]:
    """Return the records of a file in LevelDB's log format, after its 7 bytes of identification."""
    offset, found, whole = 7, [], b""
    while len(data) - offset >= 7:
        left = 2**15 - offset % 2**15  # in the block
        if left < 7:
            offset += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, offset)
        whole += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            found.append(whole)
            whole = b""
    return found


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_ends_a_sweep_and_its_trial_does_not_count(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = SimpleNamespace(interrupted=True, stopped="", score=1.0)
    monkeypatch.setattr("colobus.train", lambda *_args, **_settings: cut)
    (trial,) = sweep({}).trials
    assert trial.state.name == "PRUNED"


@pytest.mark.processes
def test_weights_and_biases_holds_metrics(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")  # seconds; 30 are its own
    for name in ("exit", "excepthook"):  # wandb replaces them in this process
        monkeypatch.setattr(sys, name, getattr(sys, name))
    run("track_wandb")
    wandb.teardown()  # its own process writes the end of the file
    (file,) = Path("runs/wandb").glob("offline-run-*/*.wandb")
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in logged(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({"/".join(i.nested_key) or i.key: i.value_json for i in items})
    last = read_metrics(Path("runs/with-wandb-1"))[-1]
    assert float(rows[-1]["score"]) == pytest.approx(last["score"])
    assert float(rows[-1]["losses/policy_loss"]) == pytest.approx(last["policy_loss"])
    assert wandb.__version__


@pytest.mark.slow
@pytest.mark.processes
def test_the_page_that_trains_without_a_launcher_learns_catch_and_says_so(tmp_path: Path) -> None:
    *progress, last = python("-W", "error", PAGE, folder=tmp_path).splitlines()
    found = re.fullmatch(r"mean of the last 50 games: (-?\d\.\d\d)", last)
    assert found is not None, last
    assert float(found[1]) >= 0.9
    steps = [int(line.split()[0].replace(",", "")) for line in progress]
    assert steps == [5120 * i for i in range(1, 10)]
    assert float(progress[0].split()[-1]) < 0.3  # it was not so at the start
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_a_page() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 119
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("word", "code", "out", "err"),
    [
        ("--help", 0, r"(?s)One page that trains an agent with Colobus's parts.*GAME.*", ""),
        ("pongg", 2, "", r"one_page\.py: error: .*pongg.*\n"),
        ("CartPole-v1", 2, "", r"one_page\.py: error: .*CartPole-v1.*\n"),
        ("--steps", 2, "", r"one_page\.py: error: .*--steps.*\n"),
    ],
)
def test_words_that_end_the_page_at_once(
    word: str, code: int, out: str, err: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run("one_page", word)
    assert end.value.code == code
    said = capsys.readouterr()
    assert re.fullmatch(out, said.out)
    assert re.fullmatch(err, said.err)


def test_every_example_is_shown_by_a_page_and_stands_in_the_list() -> None:
    there = {path.name for path in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    alone = re.compile(r"^\[`examples/([\w.]+)`\]\(\.\./examples/\1\)$", re.M)  # docs/site/conf.py
    shown = {name for text in pages for name in alone.findall(text)}
    listed = re.findall(
        r"^\| [^|]+ \| \[`([\w.]+)`\]\(\1\) \|", (EXAMPLES / "README.md").read_text(), re.M
    )
    assert sorted(listed) == sorted(there) == sorted(shown)


@pytest.mark.slow
def test_the_readme(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(here / "runs" / "pong-1", GameSettings(game="pong"))
    blocks = fenced("README.md", "python")
    assert ["make_env" in blocks[0], "make_vec" in blocks[1]] == [True, True]
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert re.search(r"^score -?\d+$", capsys.readouterr().out, re.MULTILINE)


def test_frames_by_maximum_from_gymnasiums_wrappers_are_those_of_training() -> None:
    """As docs/python.md makes them; FIRE is not pressed there."""
    (block,) = [block for block in fenced("docs/python.md", "python") if "halved" in block]
    names: dict[str, Any] = {}
    exec(block, names)
    settings = replace(preset("breakout")[0].games, fire_at_reset=False, fire_on_life_loss=False)
    shown, own = names["env"], make_env(replace(settings, game="breakout", noop_max=31), 4)
    assert (settings.downscale, settings.size) == ("maximum", 42)
    np.testing.assert_array_equal(shown.reset(seed=1)[0], own.reset(seed=1)[0])
    for action in (1, 2, 3) * 10:
        seen = shown.step(action)[0]
        np.testing.assert_array_equal(seen, own.step(action)[0])
    assert seen.shape == (4, 42, 42)
    assert seen.any()


@pytest.mark.slow
@pytest.mark.processes
def test_the_change_of_the_torso_makes_it_a_choice_that_trains(tmp_path: Path) -> None:
    (change,) = fenced("docs/extending.md", "diff")
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src" / "colobus", source / "colobus")
    for part in re.split(r"^--- a/\S+\n", change, flags=re.MULTILINE)[1:]:
        name, _, lines = part.partition("\n@@\n")
        file = tmp_path / name.removeprefix("+++ b/")
        rows = lines.splitlines()
        before = "\n".join(row[1:] for row in rows if row[0] in " -")
        after = "\n".join(row[1:] for row in rows if row[0] in " +")
        text = file.read_text(encoding="utf-8")
        assert text.count(before) == 1, name
        file.write_text(text.replace(before, after), encoding="utf-8")
    words = ["-m", "colobus.cli.main", "train", "catch", "--torso", "squares", "--steps", "3000"]
    more = ["--no-finish", "--out", "run"]
    python(*words, *more, folder=tmp_path, PYTHONPATH=str(source))
    assert (tmp_path / "run" / "checkpoints").is_dir()
