"""``gelada games`` lists what ``gelada train`` takes."""

from __future__ import annotations

import json

import pytest

from gelada.cli.main import run
from gelada.envs.make import known_games
from gelada.experiment.presets import FAMILIES, PRESETS, preset


def test_every_listed_name_can_be_learned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["games", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
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


def test_the_list_is_for_people_and_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["games"]) == 0
    text = capsys.readouterr().out
    assert "space_invaders" in text
    assert "dqn-" in text
    assert "train CartPole-v1" in text
    assert run(["games", "Pong"]) == 0
    text = capsys.readouterr().out
    assert "Atari games (1):" in text
    assert "gorila-pong" in text
    assert "seaquest" not in text
    assert run(["games", "tetris-3"]) == 0
    assert "no game or preset contains 'tetris-3'" in capsys.readouterr().out
