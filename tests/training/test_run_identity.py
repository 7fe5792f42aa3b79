"""The checkpoints of a run say which run it is, and those of others are not taken for its own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import catch
from gelada.core.checkpoint import newest_checkpoint
from gelada.core.errors import GeladaError
from gelada.envs.api import GameSettings
from gelada.evaluation.agent import load
from gelada.experiment.settings import Experiment
from gelada.runs.config import Config, check_of, identity, read_config, write_config
from gelada.training.run import train
from gelada.training.start import begin_again


def trained(folder: Path) -> Path:
    """Train two updates of Catch; return the tensors of its newest checkpoint."""
    train(catch(512 + 2 * 512), folder, log=lambda _: None)
    return newest_checkpoint(folder / "checkpoints")[0]


def test_a_checkpoint_of_another_run_is_not_taken(tmp_path: Path) -> None:
    mine, theirs = trained(tmp_path / "mine"), trained(tmp_path / "theirs")
    config = read_config(tmp_path / "mine")
    own = newest_checkpoint(mine.parent)[1]
    assert own.run == identity(config)
    assert len(config.about["run"]) == 16
    newer = mine.with_name("00009999.safetensors")  # it looks newer, and its tensors fit
    for suffix in (".safetensors", ".json"):
        shutil.copy(theirs.with_suffix(suffix), newer.with_suffix(suffix))
    lines: list[str] = []
    start = begin_again(tmp_path / "mine", config, lines.append)
    assert (start.version.number, start.run) == (own.version.number, identity(config))
    said = "checkpoint 00009999.safetensors is of another run: its run is "
    assert [line.startswith(said) for line in lines] == [True, False]
    assert load(tmp_path / "mine").checkpoint.version == own.version
    with pytest.raises(GeladaError, match=r"00009999\.safetensors is of another run: its run is "):
        load(newer)


def test_whole_numbers_are_the_same_settings_once_they_were_written(tmp_path: Path) -> None:
    games = GameSettings(sticky=1, max_frames=600)  # 1.0 in config.json's reader
    config = Config("pong", Experiment(games=games), 6, {"run": "5a"})
    write_config(tmp_path, config)
    assert identity(read_config(tmp_path)) == identity(config)
    others = [GameSettings(sticky=1), GameSettings(sticky=0.5, max_frames=600)]
    digests = {
        identity(config._replace(experiment=Experiment(games=g)))["settings"] for g in others
    }
    assert len(digests | {identity(config)["settings"]}) == 3


def test_settings_are_compared_within_a_version_only(tmp_path: Path) -> None:
    """Another version may have other defaults, and the digest is of what differs from them."""
    trained(tmp_path / "run")
    config = read_config(tmp_path / "run")
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")[1]
    network = replace(config.experiment.network, autoencoder_weight=2.0)
    changed = config._replace(experiment=replace(config.experiment, network=network))
    with pytest.raises(
        GeladaError, match=r"^is of another run: its settings of game and network is"
    ):
        check_of(changed)(checkpoint)
    check_of(changed._replace(about=config.about | {"gelada-rl": "0.0.1"}))(checkpoint)
