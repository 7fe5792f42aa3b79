"""``colobus export`` and ``colobus record`` as people give them, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import colobus
from colobus.runs.config import read_config
from helpers.launching import colobus as command
from helpers.launching import printed, refused, told
from helpers.players import add_checkpoint, decoded, write_run


@pytest.fixture
def folder(here: Path) -> Path:
    """A run of Catch with checkpoints after 500 and 1,000 steps; commands run beside it."""
    write_run(here / "catch-1")
    add_checkpoint(here / "catch-1", 3, 500)
    return here / "catch-1"


OLDER = Path("checkpoints", "00000003.safetensors")
"""The older checkpoint of that run."""


@pytest.mark.slow
def test_an_onnx_file_is_written_and_compared(folder: Path) -> None:
    code, out, err = command("export", folder, "--onnx", "--json")
    assert code == 0
    found = json.loads(out)["onnx"]
    assert found["file"] == str(folder / "export" / "1000.onnx")
    assert Path(found["file"]).stat().st_size > 1000
    assert found["observations"] == 1000
    assert found["difference"] < 1e-4
    assert "ONNX Runtime and torch over 1,000 observations" in err
    found = told("export", folder / OLDER, "--onnx")["onnx"]
    assert found["file"] == str(folder / "export" / "500.onnx")


def test_a_folder_for_a_hub_is_shown_and_evaluated_by_its_name_or_its_file(folder: Path) -> None:
    hub = folder.with_name("hub")
    words = ("--hub", hub, "--weights", "int8", "--episodes", 8, "--film-seconds", 1)
    said = told("export", folder, *words)["hub"]
    assert said["folder"] == str(hub)
    assert said["bytes"] == sum(path.stat().st_size for path in hub.iterdir())
    for path in (hub, hub / "model.safetensors"):
        assert told("show", path)["checkpoint"]["steps"] == 1_000
        played = told("eval", path, "--episodes", 8)
        assert (played["scores"], played["steps"]) == (said["evaluation"]["scores"], 1_000)
    assert len(list((hub / "eval").glob("*.json"))) == 1
    printed("record", hub, "--seconds", 1)
    assert (hub / "videos" / "1000.mp4").is_file()


REFUSED = {
    "export RUN": "export as what? give --onnx, --hub FOLDER or both",
    "export RUN --hub h --out a.onnx": "--out a.onnx: has an effect only with --onnx",
    "export RUN --onnx --out a.pt": "--out a.pt: must end in .onnx",
    "export RUN --onnx --weights int8": "--weights int8: has an effect only with --hub FOLDER",
    "export RUN --onnx --film-seconds 3": "--film-seconds 3: has an effect only with --hub",
    "export RUN --hub h --protocol none --episodes 3": "--episodes 3: --protocol none plays no",
    "export RUN --hub RUN": "RUN: is there already",
    "export zoo:nothing --onnx": "zoo:nothing: ",
    "record RUN --gif --out a.mp4": "--gif with --out a.mp4",
    "record RUN --milestones --grid 2": "--milestones with --grid: two kinds of films",
    "record RUN RUN --milestones": "--milestones with 2 runs: takes one run",
    "record RUN --milestones --checkpoint 7": "--milestones with --checkpoint",
    "record HALF --milestones": "--milestones with HALF: takes a run, with its checkpoints",
    "record RUN RUN --checkpoint 7": "--checkpoint with 2 runs",
    "record RUN RUN": "a film of 2 runs: say where with --out FILE",
    "record RUN --grid 37": "--grid 37: must be at least 0 and at most 36",
    "record RUN RUN --grid 20 --out a.mp4": "2 runs with --grid 20: at most 36 games in all",
    "eval ALL": "'ALL' is a folder of runs: name one of them, such as RUN",
    "show ALL": "'ALL' is a folder of runs: name one of them, such as RUN",
    "eval HALF --checkpoint 7": "checkpoint 7: HALF is one already; leave one out",
    "eval RUN/checkpoints/8.safetensors": "'RUN/checkpoints/8.safetensors': there is no such "
    "checkpoint",
    "show RUN/checkpoints/8.safetensors": "'RUN/checkpoints/8.safetensors': there is no such "
    "checkpoint",
    "show RUN --lr 1": "--lr: a run's settings are fixed; leave it out",
    "show RUN --cores 4": "--cores: a run's settings are fixed; leave it out",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_one_line(words: str, folder: Path) -> None:
    aside = folder.with_name(f".{folder.name}-1")
    aside.mkdir()
    (aside / "config.json").touch()  # of a run that was set aside, which is not offered
    before = sorted(folder.parent.rglob("*"))
    asked, said = words, REFUSED[words]
    for name, path in (("RUN", folder), ("ALL", folder.parent), ("HALF", folder / OLDER)):
        asked, said = (text.replace(name, str(path)) for text in (asked, said))
    assert refused(*asked.split()).startswith(f"colobus: {said}")
    assert sorted(folder.parent.rglob("*")) == before


def test_a_protocol_for_other_games_leaves_nothing(folder: Path) -> None:
    hub = folder.with_name("hub")
    code, _, err = command("export", folder, "--hub", hub, "--protocol", "sticky")
    assert code == 2
    assert err.splitlines()[-1].startswith("colobus: protocol 'sticky' is for Atari games")
    assert list(folder.parent.iterdir()) == [folder]


def test_a_run_and_a_checkpoint_are_taken_as_load_does(folder: Path) -> None:
    text = printed("show", folder)
    assert f"settingsofcatch,{folder}" in "".join(text.split())
    assert "checkpoint 00000007: 1,000 steps" in text
    width = read_config(folder).experiment.network.width
    for path, steps in ((folder, 1_000), (folder / OLDER, 500)):
        assert colobus.load(path).checkpoint.steps == steps
        assert told("eval", path, "--episodes", 3)["steps"] == steps
        assert (folder / "eval" / f"{steps}-training-3-sampled-seed1.json").is_file()
        shown = told("show", path)
        assert shown["checkpoint"]["steps"] == steps
        assert shown["settings"]["network"]["width"] == width
    assert len(list((folder / "eval").iterdir())) == 2
    said = told("record", folder / OLDER, "--gif")
    film = folder / "videos" / "500.gif"
    assert (said["film"], said["games"][0]["steps"]) == (str(film), 9)
    assert film.read_bytes()[:4] == b"GIF8"


def test_milestones_are_filmed_side_by_side(folder: Path) -> None:
    said = told("record", folder, "--milestones", "--gif")
    assert said["film"] == str(folder / "videos" / "milestones.gif")
    titles = [game["title"] for game in said["games"]]
    assert titles == ["before: 0 steps", "half way: 500 steps", "after: 1,000 steps"]
    assert all(game["over"] and game["score"] in (-1.0, 1.0) for game in said["games"])
    assert decoded(folder / "videos" / "milestones.gif")[0].shape[1:3] == (264, 3 * 240 + 2 * 6)
    (folder / OLDER).with_suffix(".json").unlink()  # the checkpoint half way
    said = printed("record", folder, "--milestones", "--seconds", 1)
    assert "no complete checkpoint is near half way" in said
    assert decoded(folder / "videos" / "milestones.mp4")[0].shape[1:3] == (514, 2 * 360 + 6)


def test_several_games_are_in_one_picture(folder: Path) -> None:
    said = printed("record", folder, "--grid", 4, "--seed", 7, "--gif")
    assert [f"seed {seed}: score" in said for seed in (7, 8, 9, 10)] == [True] * 4
    assert said.count("the game was over") == 4
    assert decoded(folder / "videos" / "1000-grid.gif")[0].shape[1:3] == (2 * 264 + 6, 2 * 240 + 6)
    other = folder.with_name("catch-2")
    write_run(other)
    out = folder.with_name("both.mp4")
    said = told("record", folder, other, "--out", out)
    assert [game["title"] for game in said["games"]] == ["catch-1", "catch-2"]
    assert decoded(out)[0].shape[1:3] == (514, 2 * 360 + 6)
