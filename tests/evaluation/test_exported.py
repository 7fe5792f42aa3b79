"""The weights of an exported agent: as they are, or rounded to 8 bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colobus import __version__
from colobus.core.checkpoint import read_checkpoint, write_pair
from colobus.core.errors import ColobusError
from colobus.core.types import Version
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.export.hub import export_folder, metadata_of, model_card
from colobus.evaluation.protocols import Evaluation, PlayedGame, find_protocol
from colobus.runs.config import read_config
from colobus.runs.exported import Weights, packed, unpacked
from colobus.runs.folder import MODEL, place_of
from helpers.made_runs import change_config
from helpers.players import BREAKOUT, decoded, make_checkpoint, make_experiment, write_run


def test_float32_weights_are_unchanged_and_nothing_else_is_kept() -> None:
    checkpoint = make_checkpoint(make_experiment(BREAKOUT), 4)
    checkpoint.tensors["optimizer/step"] = torch.tensor(3)
    checkpoint.counters.update({"score": 1.5, "recent_scores": [1.0, 2.0]})
    found = packed(checkpoint)
    assert {name.partition("/")[0] for name in found.tensors} == {"parameter", "input"}
    assert all(
        torch.equal(value, checkpoint.tensors[name]) for name, value in found.tensors.items()
    )
    assert found.counters == {"score": 1.5}
    assert unpacked(found) is found


def test_rounded_weights_are_those_of_the_definition() -> None:
    """Each row: q = round(w * 127 / max |w|), w ≈ q * max |w| / 127."""
    checkpoint = make_checkpoint(make_experiment(BREAKOUT), 4)
    small = packed(checkpoint, "int8")
    again = unpacked(small)
    assert small.tensors["int8/torso.hidden.weight"].dtype == torch.int8
    assert "parameter/torso.hidden.weight" not in small.tensors
    for name, value in checkpoint.group("parameter").items():
        exact = value.numpy()
        found = again.tensors[f"parameter/{name}"].numpy()
        assert found.dtype == np.float32
        assert found.shape == exact.shape
        if exact.ndim < 2:
            np.testing.assert_array_equal(found, exact)
            continue
        for row, other in zip(exact, found, strict=True):
            scale = np.abs(row).max() / 127
            whole = np.rint(row / scale)
            assert np.abs(whole).max() == 127
            np.testing.assert_allclose(other, whole * scale, rtol=1e-5, atol=scale * 1e-3)
            assert np.abs(other - row).max() <= 0.501 * scale


def test_a_row_of_zeros_stays_zero() -> None:
    checkpoint = make_checkpoint(make_experiment(BREAKOUT), 4)
    checkpoint.tensors["parameter/torso.hidden.weight"][3] = 0.0
    again = unpacked(packed(checkpoint, "int8"))
    assert not again.tensors["parameter/torso.hidden.weight"][3].any()


def test_a_weight_without_a_scale_that_fits_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, BREAKOUT)
    small = packed(load(tmp_path).checkpoint, "int8")
    bad = (torch.empty(0), torch.ones(16, dtype=torch.float64), torch.full((16,), torch.nan))
    for scale in bad:
        tensors = small.tensors | {"scale/torso.hidden.weight": scale}
        write_pair(tmp_path / MODEL, small._replace(tensors=tensors))
        assert read_checkpoint(tmp_path / MODEL)
        with pytest.raises(ColobusError, match=r"without a scale/torso\.hidden\.weight that fits"):
            load(tmp_path)


def test_names_of_the_zoo(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.runs.folder.CLONE", here / "elsewhere")
    assert place_of(Path("runs/pong-1")) == Path("runs/pong-1")
    with pytest.raises(ColobusError, match="zoo:pong: the zoo is not here"):
        place_of(Path("zoo:pong"))
    write_run(here / "zoo" / "pong")
    assert place_of(Path("zoo:pong")) == Path("zoo/pong")
    with pytest.raises(ColobusError, match=r"zoo:pnog: there is no such agent .*known: pong"):
        place_of(Path("zoo:pnog"))
    with pytest.raises(ColobusError, match=r"zoo:\.\./runs: there is no such agent"):
        place_of(Path("zoo:../runs"))


FILES = ["README.md", "config.json", "evaluation.json", "model.json", "model.safetensors"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("game", "network", "own"),
    [
        ("minigrid:MiniGrid-DoorKey-5x5-v0", {}, False),
        ("catch", {"own_heads": "mine:heads"}, True),
        ("mine:make", {}, True),
    ],
)
def test_cards_tell_of_own_code(run: Path, game: str, network: dict[str, Any], own: bool) -> None:
    config = read_config(run)
    one = config.experiment
    games, net = replace(one.games, game=game), replace(one.network, **network)
    changed = config._replace(experiment=replace(one, games=games, network=net))
    card = model_card(changed, load(run), "float32", None, film=False)
    assert ("code of the run's own" in card) == own


def metadata(card: str) -> dict[str, Any]:
    """Return what stands between the two lines of dashes; its values are JSON."""
    lines = card.split("---\n")[1].splitlines()
    return {line.partition(": ")[0]: json.loads(line.partition(": ")[2]) for line in lines}


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_folder_has_all_to_play_the_agent_and_is_checked(run: Path, weights: Weights) -> None:
    folder = run.with_name("exported")
    agent = load(run)
    done = export_folder(agent, run, folder, weights, episodes=20, film_seconds=5)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "replay.mp4"])
    assert done.size == sum(path.stat().st_size for path in folder.iterdir())
    assert (folder / "config.json").read_bytes() == (run / "config.json").read_bytes()
    want = unpacked(packed(agent.checkpoint, weights)).tensors["parameter/torso.hidden.weight"]
    for named in (folder, folder / MODEL):
        again = load(named)
        assert again.checkpoint.steps == agent.checkpoint.steps
        assert torch.equal(dict(again.net.named_parameters())["torso.hidden.weight"], want)
    boards = np.random.default_rng(1).integers(0, 256, (64, 4, 10, 5), dtype=np.uint8)
    agent.seed(1)
    again.seed(1)
    if weights == "float32":
        np.testing.assert_array_equal(again.act(boards), agent.act(boards))
    assert len(decoded(folder / "replay.mp4")[0]) == 9
    data = bytearray((folder / MODEL).read_bytes())
    data[-1] ^= 1
    (folder / MODEL).write_bytes(data)
    with pytest.raises(ColobusError, match=r"model\.safetensors is truncated or damaged"):
        load(folder)


def test_the_score_of_the_card_is_that_of_the_folder(run: Path) -> None:
    folder = run.with_name("exported")
    export_folder(load(run), run, folder, "int8", episodes=20, film_seconds=0)
    again = evaluate(folder, "training", 20)
    saved = json.loads((folder / "evaluation.json").read_text())
    assert saved["scores"] == again.scores
    assert (saved["protocol"], saved["episodes"]) == ("training", 20)
    card = (folder / "README.md").read_text()
    for line in again.lines():
        assert line in card
    (result,) = metadata(card)["model-index"][0]["results"]
    want = f"{np.mean(again.scores):.2f} +/- {np.std(again.scores):.2f}"
    assert result["metrics"][0]["value"] == want
    assert "rounded to 8 bits" in card
    assert "| network | width | 16 |" in card
    assert "replay.mp4" not in card


def of_scores(*scores: float) -> Evaluation:
    games = tuple(PlayedGame(score, 10, False) for score in scores)
    how = find_protocol("training"), BREAKOUT, ("NOOP",)
    count = len(games)
    return Evaluation(*how, "greedy", 0.0, 1, 500, None, Version(0, 1), 16, count, games)


@pytest.mark.parametrize(
    ("game", "name", "more"),
    [
        ("space_invaders", "ALE/SpaceInvaders-v5", ["atari", "space_invaders"]),
        ("tic_tac_toe_3d", "ALE/TicTacToe3D-v5", ["atari", "tic_tac_toe_3d"]),
        ("CartPole-v1", "CartPole-v1", []),
        ("minigrid:MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-5x5-v0", []),
        ("my_module:make", "my_module:make", []),
    ],
)
def test_leaderboards_find_scores_by_environment(game: str, name: str, more: list[str]) -> None:
    task = "reinforcement-learning"
    said = metadata(metadata_of(game, "dqn", of_scores(1.0, 3.0, 5.0)) + "\n")
    assert (said["library_name"], said["pipeline_tag"]) == ("colobus", task)
    assert said["tags"] == [name, f"deep-{task}", task, "colobus", "dqn", *more]
    (result,) = said["model-index"][0]["results"]
    assert result["task"] == {"type": task, "name": task}
    assert result["dataset"] == {"type": name, "name": name}
    want = {"type": "mean_reward", "name": "mean_reward", "value": "3.00 +/- 1.63"}
    assert result["metrics"][0] == want | {"verified": False}


def test_the_card_has_all_of_this(run: Path) -> None:
    """Scores 1, 3 and 5: the deviation is sqrt(8 / 3), the error of the mean 2 / sqrt(3)."""
    config, agent, evaluation = read_config(run), load(run), of_scores(1.0, 3.0, 5.0)
    about = {"colobus": "0.1", "python": "3.12", "processor": "A_1", "cores": 8, "memory_gib": 15.5}
    agent.checkpoint = agent.checkpoint._replace(steps=12_345, counters={"seconds": 90.0})
    evaluation = replace(evaluation, episodes=4)
    card = model_card(config._replace(about=about), agent, "float32", evaluation, film=True)
    scores = "\n".join(evaluation.lines())
    begin, _, rest = card.partition("## Settings\n")
    assert (
        begin
        == f"""{metadata_of("catch", "appo", evaluation)}

# catch, learned by APPO

This agent plays catch. It was trained for 12,345 steps (decisions) with Colobus 0.1, in 1.5 \
minutes.

[A film of the agent](replay.mp4)

## Score

Mean **3.00** ± 1.63 (standard deviation of the games) over 3 full games of 4 that were asked for; \
95 % interval of the mean: 0.74 to 5.26. How they were played, and every score:

```
{scores}
```

## How to load it

These commands need Colobus, the Python package `colobus`. FOLDER is this folder on your machine:

```
colobus eval FOLDER
colobus record FOLDER --out film.mp4
colobus play FOLDER
```

From Python:

```python
import colobus

agent = colobus.load("FOLDER")
env = agent.make_env()
observation, info = env.reset(seed=1)
action = agent.act(observation)
```

## Files

| file | contents |
|---|---|
| `model.safetensors` | weights, as they were learned, float32; mean and deviation of the input |
| `model.json` | steps, counters and checksums |
| `config.json` | all settings of the run, and the machine it ran on |
| `evaluation.json` | every game of the score above |
| `replay.mp4` | the agent plays |

"""
    )
    first, *rows = rest.strip("\n").split("\n\n")
    assert first == (
        f"Settings that differ from the defaults of Colobus {__version__}, and all of the game:"
    )
    head, rule, *settings, seed = rows[0].splitlines()
    assert (head, rule) == ("| group | setting | value |", "|---|---|---|")
    assert '| games | game | "catch" |' in settings
    assert seed == f"| | seed | {config.experiment.seed} |"
    trained_on = "A\\_1, 8 cores, 15.5 GiB. colobus 0.1, python 3.12."
    assert rows[1:] == ["## Trained on", trained_on]
    assert card.endswith(".\n")
    one_game = model_card(config, agent, "float32", of_scores(1.0), film=True)
    assert "interval" not in one_game


def test_without_an_evaluation_the_card_says_so_and_nothing_beside_is_touched(run: Path) -> None:
    beside, folder = run.with_name(".exported.tmp"), run.with_name("exported")
    beside.mkdir()
    (beside / "notes.txt").write_text("mine")
    done = export_folder(load(run), run, folder, protocol=None, film_seconds=0)
    assert done.evaluation is None
    files = sorted(path.name for path in folder.iterdir())
    assert files == [name for name in FILES if name != "evaluation.json"]
    card = (folder / "README.md").read_text()
    assert "was not evaluated" in card
    assert "model-index" not in metadata(card)
    assert (beside / "notes.txt").read_text() == "mine"
    names = sorted(path.name for path in run.parent.iterdir())
    assert names == [".exported.tmp", "exported", "run"]


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_an_exported_folder_can_be_exported_again(run: Path, weights: Weights) -> None:
    """Rounded weights stay rounded, and the card says so."""
    first, second = run.with_name("first"), run.with_name("second")
    export_folder(load(run), run, first, weights, protocol=None, film_seconds=0)
    export_folder(load(first), first, second, protocol=None, film_seconds=0)
    for name in ("model.safetensors", "config.json", "README.md"):
        assert (second / name).read_bytes() == (first / name).read_bytes()


def test_the_card_says_how_the_run_began_that_minutes_are_simulated_and_the_gpu(run: Path) -> None:
    began = "beginning with the weights of runs/a after 9,000 steps"
    change_config(run, about={"from": began, "time": "simulated, link 10Gb", "gpu": "NVIDIA H200"})
    agent = load(run)
    agent.checkpoint.counters["seconds"] = 90.0
    card = model_card(read_config(run), agent, "float32", None, film=False)
    assert f", in 1.5 simulated minutes, {began}." in card
    assert " GiB, NVIDIA H200." in card


def test_an_export_that_is_stopped_leaves_nothing(run: Path) -> None:
    def stop(_done: float, _all: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_folder(load(run), run, run.with_name("exported"), progress=lambda _what: stop)
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_place_that_cannot_be_written_is_named(run: Path) -> None:
    file = run.with_name("file")
    file.write_text("")
    with pytest.raises(ColobusError, match=r"cannot write .*folder: .*name another folder"):
        export_folder(load(run), run, file / "folder")


def test_what_a_stranger_wrote_means_nothing_in_the_card(run: Path) -> None:
    about = {"processor": "<img src=x>\x1b]0;\n---\n# no", "colobus": "2 ![t](h)"}
    change_config(run, games={"observe": "<b> [t](h) | x"}, about=about)
    export_folder(load(run), run, run.with_name("out"), protocol=None, film_seconds=0)
    card = (run.with_name("out") / "README.md").read_text()
    assert "\x1b" not in card
    assert "\n# no" not in card
    assert "\\<img src=x\\>" in card
    assert "!\\[t\\](h)" in card
    assert '"\\<b\\> \\[t\\](h) \\| x"' in card
