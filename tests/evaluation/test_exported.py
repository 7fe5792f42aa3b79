"""The weights of an exported agent: as they are, or rounded to 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gelada.core.checkpoint import read_checkpoint, write_pair
from gelada.core.errors import GeladaError
from gelada.envs.api import GameSettings
from gelada.evaluation.agent import load
from gelada.evaluation.exported import MODEL, packed, unpacked
from gelada.evaluation.zoo import place_of
from helpers.players import make_checkpoint, make_experiment, write_run

BREAKOUT = GameSettings(game="breakout")


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


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_files_are_read_again_and_checked(tmp_path: Path, weights: str) -> None:
    write_run(tmp_path / "run", BREAKOUT)
    agent = load(tmp_path / "run")
    folder = tmp_path / "exported"
    folder.mkdir()
    (folder / "config.json").write_bytes((tmp_path / "run" / "config.json").read_bytes())
    small = packed(agent.checkpoint, "int8" if weights == "int8" else "float32")
    write_pair(folder / MODEL, small)
    for named in (folder, folder / MODEL):
        found = load(named)
        assert found.checkpoint.steps == 1000
        want = unpacked(small).tensors["parameter/torso.hidden.weight"]
        assert torch.equal(dict(found.net.named_parameters())["torso.hidden.weight"], want)
    data = bytearray((folder / MODEL).read_bytes())
    data[-1] ^= 1
    (folder / MODEL).write_bytes(data)
    with pytest.raises(GeladaError, match=r"model\.safetensors is truncated or damaged"):
        load(folder)


def test_a_weight_without_a_scale_that_fits_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, BREAKOUT)
    small = packed(load(tmp_path).checkpoint, "int8")
    bad = (torch.empty(0), torch.ones(16, dtype=torch.float64), torch.full((16,), torch.nan))
    for scale in bad:
        tensors = small.tensors | {"scale/torso.hidden.weight": scale}
        write_pair(tmp_path / MODEL, small._replace(tensors=tensors))
        assert read_checkpoint(tmp_path / MODEL)
        with pytest.raises(GeladaError, match=r"without a scale/torso\.hidden\.weight that fits"):
            load(tmp_path)


def test_names_of_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gelada.evaluation.zoo.CLONE", tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert place_of(Path("runs/pong-1")) == Path("runs/pong-1")
    with pytest.raises(GeladaError, match="zoo:pong: the zoo is not here"):
        place_of(Path("zoo:pong"))
    write_run(tmp_path / "zoo" / "pong")
    assert place_of(Path("zoo:pong")) == Path("zoo/pong")
    with pytest.raises(GeladaError, match=r"zoo:pnog: there is no such agent .*known: pong"):
        place_of(Path("zoo:pnog"))
    with pytest.raises(GeladaError, match=r"zoo:\.\./runs: there is no such agent"):
        place_of(Path("zoo:../runs"))
