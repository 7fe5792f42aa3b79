"""The LSTM against its equations in numpy, and whole sequences against single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from colobus.nets.network import NetworkSettings, Observed
from colobus.nets.recurrent import LSTM
from conftest import make_net, recurrent_net

W, N, S = 5, 3, 7
Array = np.ndarray[Any, Any]

ENDS: dict[str, list[tuple[int, int]]] = {
    "none": [],
    "at the first step": [(0, 0), (2, 0)],
    "at the last step": [(1, S - 1)],
    "in succession": [(0, 2), (0, 3), (0, 4), (1, 3)],
    "at every step": [(n, t) for n in range(N) for t in range(S)],
    "here and there": [(0, 0), (0, S - 1), (1, 2), (2, 5), (2, 6)],
}
"""Sequence and step before which the state is set to 0."""


def begins_of(ends: str) -> torch.Tensor:
    begins = torch.zeros(N, S, dtype=torch.bool)
    for n, t in ENDS[ends]:
        begins[n, t] = True
    return begins


def make_lstm() -> LSTM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        lstm = LSTM(W, "orthogonal").double()
        with torch.no_grad():
            lstm.inputs.bias.add_(torch.randn(4 * W))
    return lstm


def case() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs [N, S, W] and a state [N, 2 W]."""
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(N, S, W, generator=random, dtype=torch.float64)
    return inputs, torch.randn(N, 2 * W, generator=random, dtype=torch.float64)


def slow(lstm: LSTM, inputs: Array, state: Array, begins: Array) -> tuple[Array, Array]:
    """Gers et al. 2000, sequence by sequence and step by step."""
    weight, bias = lstm.inputs.weight.detach().numpy(), lstm.inputs.bias.detach().numpy()
    recurrent = lstm.memory.weight.detach().numpy()
    outputs, last = np.zeros((N, S, W)), np.zeros((N, 2 * W))
    for n in range(N):
        hidden, cell = state[n, :W].copy(), state[n, W:].copy()
        for t in range(S):
            if begins[n, t]:
                hidden, cell = np.zeros(W), np.zeros(W)
            drive = (weight @ inputs[n, t] + recurrent @ hidden + bias).reshape(4, W)
            admit, keep, show = 1.0 / (1.0 + np.exp(-drive[1:]))
            cell = keep * cell + admit * np.tanh(drive[0])
            outputs[n, t] = hidden = show * np.tanh(cell)
        last[n] = np.concatenate([hidden, cell])
    return outputs, last


def step_by_step(lstm: LSTM, inputs: Any, state: Any, begins: Any) -> tuple[Any, Any]:
    outputs = []
    for t in range(inputs.shape[1]):
        state = state.masked_fill(begins[:, t : t + 1], 0.0)
        output, state = lstm.step(inputs[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("ends", ENDS)
def test_a_sequence_is_its_steps_one_by_one(ends: str) -> None:
    """As the equations say; gradients of inputs and weights are those of steps by autograd."""
    lstm, (inputs, state), begins = make_lstm(), case(), begins_of(ends)
    of_outputs = torch.randn(N, S, W, generator=torch.Generator().manual_seed(9)).double()
    found = []
    for go in (lstm.unroll, lambda *args: step_by_step(lstm, *args)):
        lstm.zero_grad()
        own = inputs.clone().requires_grad_(True)
        outputs, last = go(own, state, begins)
        outputs.backward(of_outputs)
        gradients = [p.grad.clone() for p in (own, *lstm.parameters()) if p.grad is not None]
        assert len(gradients) == 4
        found.append([outputs.detach(), last.detach(), *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    want = slow(lstm, inputs.numpy(), state.numpy(), begins.numpy())
    for ours, by_hand in zip(found[0][:2], want, strict=True):
        np.testing.assert_allclose(ours, by_hand, rtol=1e-12, atol=1e-12)
    assert not lstm.unroll(inputs, state, begins)[1].requires_grad


def test_the_forget_gate_is_open_at_first_and_weights_are_orthogonal() -> None:
    lstm = LSTM(W, "orthogonal")
    bias = lstm.inputs.bias.detach().view(4, W)
    assert bias.sum(dim=1).tolist() == [0.0, 0.0, float(W), 0.0]
    for layer in (lstm.inputs, lstm.memory):
        weight = layer.weight.detach()
        torch.testing.assert_close(weight.t() @ weight, torch.eye(W))
    assert torch.equal(lstm.initial_state(2), torch.zeros(2, 2 * W))


def test_a_network_without_one_has_no_parameter_more_and_no_state() -> None:
    plain = make_net(NetworkSettings(torso="tiny", width=16, stack=1))
    names = [name for name, _ in plain.named_parameters()]
    more = [name for name, _ in recurrent_net().named_parameters()]
    own = ["recurrent.inputs.weight", "recurrent.inputs.bias", "recurrent.memory.weight"]
    assert [name for name in more if name not in names] == own
    assert [name for name in more if name not in own] == names
    assert more.index("heads.policy.weight") > more.index(own[-1])  # actors pull up to the policy
    assert plain.initial_state(3) is None
    assert recurrent_net().initial_state(3).shape == (3, 32)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_copy_for_acting_steps_as_the_network_unrolls(precision: str) -> None:
    net = recurrent_net(precision=precision)
    acting = net.for_acting(["policy"])
    random = torch.Generator().manual_seed(1)
    stacks = net.preprocess(torch.randint(0, 256, (6, 1, 10, 5), generator=random).byte())
    begins = torch.tensor([[True, False, False], [False, True, False]])
    state = torch.randn(2, 32, generator=random)
    with torch.no_grad():
        want = net(Observed(stacks, state, begins))["policy"].view(2, 3, -1)
        for t in range(3):
            state = state.masked_fill(begins[:, t : t + 1], 0.0)
            hidden, state = acting.step(stacks.view(2, 3, 1, 10, 5)[:, t], state)
            tolerance = 1e-6 if precision == "float32" else 1e-3
            found = acting.heads["policy"](hidden)
            torch.testing.assert_close(found, want[:, t], rtol=0.0, atol=tolerance)
