"""Exported folders: what is in them, how they are loaded, and that they are whole or not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from gelada.core.errors import GeladaError
from gelada.evaluation.agent import load
from gelada.evaluation.evaluator import evaluate
from gelada.evaluation.export.hub import export_folder
from gelada.evaluation.exported import Weights
from helpers.players import write_run

FILES = ["README.md", "config.json", "evaluation.json", "model.json", "model.safetensors"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


def metadata(card: str) -> dict[str, Any]:
    """Return what stands between the two lines of dashes; its values are JSON."""
    lines = card.split("---\n")[1].splitlines()
    return {line.partition(": ")[0]: json.loads(line.partition(": ")[2]) for line in lines}


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_folder_has_everything_to_play_the_agent(run: Path, weights: Weights) -> None:
    folder = run.with_name("exported")
    agent = load(run)
    done = export_folder(agent, run, folder, weights, episodes=20, film_seconds=5)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "replay.mp4"])
    assert done.size == sum(path.stat().st_size for path in folder.iterdir())
    assert (folder / "config.json").read_bytes() == (run / "config.json").read_bytes()
    again = load(folder)
    assert again.checkpoint.steps == agent.checkpoint.steps
    boards = np.random.default_rng(1).integers(0, 256, (64, 4, 10, 5), dtype=np.uint8)
    agent.seed(1)
    again.seed(1)
    if weights == "float32":
        np.testing.assert_array_equal(again.act(boards), agent.act(boards))
    with av.open(str(folder / "replay.mp4")) as film:
        assert sum(1 for _ in film.decode(video=0)) == 9


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
    said = metadata(card)
    assert said["tags"] == ["reinforcement-learning", "gelada", "catch", "appo"]
    (result,) = said["model-index"][0]["results"]
    want = f"{again.mean:.2f} +/- {again.standard_error:.2f}"
    assert result["metrics"][0] | {"value": ""} == {
        "type": "mean_reward",
        "name": "mean_reward",
        "value": "",
        "verified": False,
    }
    assert result["metrics"][0]["value"] == want
    assert "rounded to 8 bits" in card
    assert 'agent = gelada.load("FOLDER")' in card
    assert "| network | width | 16 |" in card
    assert "replay.mp4" not in card


def test_without_an_evaluation_the_card_says_so(run: Path) -> None:
    folder = run.with_name("exported")
    done = export_folder(load(run), run, folder, protocol=None, film_seconds=0)
    assert done.evaluation is None
    assert sorted(path.name for path in folder.iterdir()) == [
        name for name in FILES if name != "evaluation.json"
    ]
    card = (folder / "README.md").read_text()
    assert "was not evaluated" in card
    assert "model-index" not in metadata(card)


def test_an_exported_folder_can_be_exported_again(run: Path) -> None:
    first, second = run.with_name("first"), run.with_name("second")
    export_folder(load(run), run, first, protocol=None, film_seconds=0)
    export_folder(load(first), first, second, protocol=None, film_seconds=0)
    for name in ("model.safetensors", "config.json", "README.md"):
        assert (second / name).read_bytes() == (first / name).read_bytes()


def test_a_folder_that_is_there_is_refused(run: Path) -> None:
    folder = run.with_name("exported")
    folder.mkdir()
    with pytest.raises(GeladaError, match="exported: is there already; name a new folder"):
        export_folder(load(run), run, folder)
    assert list(folder.iterdir()) == []


def stop(_what: str) -> Callable[[int, int], None]:
    def tell(_done: int, _all: int) -> None:
        raise KeyboardInterrupt

    return tell


def test_an_export_that_is_stopped_leaves_nothing(run: Path) -> None:
    folder = run.with_name("exported")
    with pytest.raises(KeyboardInterrupt):
        export_folder(load(run), run, folder, progress=stop)
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_place_that_cannot_be_written_is_named(run: Path) -> None:
    file = run.with_name("file")
    file.write_text("")
    with pytest.raises(GeladaError, match=r"cannot write .*folder: .*name another folder"):
        export_folder(load(run), run, file / "folder")


def test_nothing_beside_the_folder_is_touched(run: Path) -> None:
    beside = run.with_name(".exported.tmp")
    beside.mkdir()
    (beside / "notes.txt").write_text("mine")
    export_folder(load(run), run, run.with_name("exported"), protocol=None, film_seconds=0)
    assert (beside / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in run.parent.iterdir()) == [
        ".exported.tmp",
        "exported",
        "run",
    ]


def test_what_a_stranger_wrote_means_nothing_in_the_card(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["about"] |= {"processor": "<img src=x>\x1b]0;\n---\n# no", "gelada-rl": "2 ![t](h)"}
    (run / "config.json").write_text(json.dumps(config))
    export_folder(load(run), run, run.with_name("out"), protocol=None, film_seconds=0)
    card = (run.with_name("out") / "README.md").read_text()
    assert "\x1b" not in card
    assert "\n# no" not in card
    assert "\\<img src=x\\>" in card
    assert "!\\[t\\](h)" in card
