"""The policy of an actor: both forms of its stacks show the network the same, step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.api import Algorithm
from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.algorithms.iqn import IQN
from colobus.core.errors import ColobusError
from colobus.core.types import Version
from colobus.nets.config import NetworkSettings
from colobus.nets.heads import Head
from colobus.nets.network import Network
from colobus.ops.distributions import centres
from colobus.ops.flat import FlatParameters
from colobus.roles.parameters.published import Pulled
from colobus.roles.policy import MovingPolicy, OnnxPolicy, Policy, SlicedPolicy, make_policy
from colobus.runtime.devices import CPU
from colobus.training.entry import train
from conftest import make_net

B, T, ACTIONS = 8, 6, 5

KINDS: dict[str, tuple[Algorithm, dict[str, Any], tuple[int, int]]] = {
    "small": (APPO(), {"torso": "small", "width": 64}, (42, 42)),
    "pooled": (APPO(), {"torso": "pooled", "width": 64}, (84, 84)),
    "residual": (APPO(), {"torso": "resnet", "width": 32}, (42, 42)),
    "latent": (APPO(), {"torso": "small", "width": 32, "autoencoder": "latent"}, (84, 84)),
    "duelling distributions": (DQN(values="histograms", duelling=True), {"width": 32}, (42, 42)),
    "quantiles at any shares": (IQN(), {"torso": "small", "width": 32}, (42, 42)),
    "separate policies": (APPO(), {"width": 32, "policies": "separate"}, (42, 42)),
    "no biases": (APPO(), {"torso": "ba3c", "width": 32, "hidden": "linear"}, (84, 84)),
}


def network(name: str, precision: Any = "float32") -> Network:
    algorithm, settings, shape = KINDS[name]

    def heads(width: int) -> dict[str, Head]:
        return algorithm.heads(ACTIONS, width)

    return make_net(NetworkSettings(**settings), shape, heads, precision, agents=2)


def drawn(net: Network, number: int) -> Pulled:
    """Return a version with parameters that are those of no other."""
    flat = FlatParameters(net)
    random = torch.Generator().manual_seed(number)
    vector = flat.values + 0.05 * torch.randn(flat.values.shape, generator=random)
    version = Version(0, number)
    return Pulled(version, vector, (version,), 0)


def scores_of(policy: Policy, versions: list[Pulled]) -> torch.Tensor:
    numbers, (height, width) = np.random.default_rng(3), policy.net.mean.shape
    found = []

    def frames(*shape: int) -> Any:
        return numbers.integers(0, 255, (B, *shape, height, width), dtype=np.uint8)

    policy.begin(frames(policy.net.stack), np.array([0, 1, 2, 3, 40, 0, 2, 7]), T)
    with torch.inference_mode():
        for pulled in versions:
            policy.load(pulled)
            for t in range(T):
                found.append(policy.evaluate(t, None)[0])
                policy.add(t, frames(), numbers.random(B) < 0.3)
    return torch.stack(found)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_moving_stacks_show_what_slices_show(depth: int) -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=depth))
    shown: list[torch.Tensor] = []

    class Mean(APPO):
        def act(self, net: Any, observations: torch.Tensor, state: Any) -> Any:
            shown.append(observations.clone())
            return observations.flatten(1).float().mean(dim=1, keepdim=True), state

    forms = SlicedPolicy(net, Mean()), MovingPolicy(net, Mean(), CPU, cuda_graphs=False)
    one, other = (scores_of(form, [drawn(net, 1), drawn(net, 2)]) for form in forms)
    assert torch.equal(one, other)
    assert len(shown) == 2 * 2 * T
    for sliced, moving in zip(shown[: 2 * T], shown[2 * T :], strict=True):
        assert torch.equal(sliced, moving)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_scores_are_those_of_torch_with_every_version(name: str) -> None:
    net, algorithm = network(name), KINDS[name][0]
    versions = [drawn(net, number) for number in (1, 2)]
    centres.cache_clear()  # as in a run, where the first to ask for them is torch's export
    found = scores_of(make_policy(net, algorithm, act_with="onnx"), versions)
    want = scores_of(make_policy(net, algorithm), versions)
    assert found.dtype == torch.float32
    assert float((want[:T] - want[T:]).abs().max()) > 1e-3
    torch.testing.assert_close(found, want, rtol=0.0, atol=1e-5)


@pytest.mark.slow
def test_it_computes_in_float32_where_the_network_is_in_bfloat16() -> None:
    rough, algorithm = network("small", "bfloat16"), KINDS["small"][0]
    version = drawn(rough, 1)
    want = scores_of(make_policy(network("small"), algorithm), [version])
    found = scores_of(OnnxPolicy(rough, algorithm), [version])
    torch.testing.assert_close(found, want, rtol=0.0, atol=1e-5)


@pytest.mark.slow
def test_noise_that_an_exploration_puts_on_the_weights_is_computed() -> None:
    net, algorithm = network("small"), KINDS["small"][0]
    one, other = make_policy(net, algorithm), OnnxPolicy(net, algorithm)
    for policy in (one, other):
        policy.load(drawn(net, 1))
        policy.net.heads["policy"].get_parameter("bias").add_(1.0)
    same = drawn(net, 1)
    torch.testing.assert_close(scores_of(other, [same]), scores_of(one, [same]), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_run_plays_and_learns_with_it(tmp_path: Path) -> None:
    result = train(
        "catch", tmp_path / "run", steps=4000, act_with="onnx", seed=3, log=lambda _: None
    )
    assert result.steps >= 4000
    result = train(resume=tmp_path / "run", steps=5000, log=lambda _: None)  # on torch again
    assert result.steps >= 5000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deterministic": True}, "--deterministic: it rounds otherwise; use --act-with torch"),
        ({"recurrent": "lstm", "sequence": 8}, "--recurrent lstm: only torch computes that; use"),
        ({"own_torso": "json:loads"}, "--own-torso .*: only torch computes that; use"),
        ({"own_heads": "json:loads"}, "--own-heads .*: only torch computes that; use"),
    ],
)
def test_what_needs_torch_is_refused_before_there_is_a_folder(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ColobusError, match=f"^--act-with onnx with {said}"):
        train("catch", tmp_path / "run", act_with="onnx", log=lambda _: None, **settings)
    assert not (tmp_path / "run").exists()


def test_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ColobusError, match=r"^--act-with onnx: .*pip install 'colobus\[onnx\]'$"):
        train("catch", tmp_path / "run", act_with="onnx", log=lambda _: None)
