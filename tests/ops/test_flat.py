"""The flat vector: views that hold, tears that are found, and what is done to it at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from colobus.core.errors import ColobusError
from colobus.nets.network import NetworkSettings
from colobus.nets.observations import blank, blank_by_age
from colobus.ops import losses, returns
from colobus.ops.flat import FlatParameters, Layout
from conftest import make_net

STACKS = torch.randn(4, 4, 42, 42, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def flat() -> FlatParameters:
    return FlatParameters(make_net(NetworkSettings(width=32), (42, 42)))


def test_views_change_no_output_and_hold_through_learning(flat: FlatParameters) -> None:
    """They also keep the strides of their parameters, and see every write."""
    want, found = make_net(NetworkSettings(width=32), (42, 42))(STACKS), flat.module(STACKS)
    assert all(torch.equal(want[name], found[name]) for name in want)
    weight = next(p for p in flat.module.parameters() if p.dim() == 4)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()
    torch.autograd.backward(sum(out.square().mean() for out in flat.module(STACKS).values()))
    flat.clip(1.0)
    flat.values.sub_(flat.gradients, alpha=0.1)
    flat.check()
    for name, parameter in flat.module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name
        assert parameter.grad.stride() == parameter.stride(), name
    flat.values.fill_(0.5)
    assert all(bool((p == 0.5).all()) for p in flat.module.parameters())
    flat.zero_gradients()
    flat.check()
    assert all(p.grad is not None and not p.grad.any() for p in flat.module.parameters())


def contiguous(module: nn.Module) -> nn.Module:
    return module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]  # torch stub


TEARS: dict[str, Callable[[nn.Module], object]] = {
    "to float64": lambda m: m.to(torch.float64),
    "load_state_dict assign": lambda m: m.load_state_dict(
        {k: v.clone() for k, v in m.state_dict().items()}, assign=True
    ),
    "zero_grad": lambda m: m.zero_grad(),
    "to contiguous": contiguous,
    "a parameter added": lambda m: m.register_parameter("more", nn.Parameter(torch.zeros(3))),
    "other data": lambda m: setattr(m.get_parameter("heads.value.bias"), "data", torch.zeros(1)),
}
SAID = {
    "a parameter added": "were added",
    "other data": r"the parameter 'heads\.value\.bias' is no longer a view",
}


@pytest.mark.parametrize("name", TEARS)
def test_a_torn_view_is_found(name: str, flat: FlatParameters) -> None:
    flat.check()
    TEARS[name](flat.module)
    with pytest.raises(AssertionError, match=SAID.get(name, "is no longer a view")):
        flat.check()


def test_named_gives_copies_and_fill_is_its_inverse(flat: FlatParameters) -> None:
    named = flat.layout.named(flat.values)
    assert list(named) == [name for name, _ in flat.module.named_parameters()]
    for name, parameter in flat.module.named_parameters():
        assert named[name].is_contiguous()
        assert torch.equal(named[name], parameter)
        assert named[name].data_ptr() != parameter.data_ptr()
    before = flat.values.clone()
    flat.values.zero_()
    flat.layout.fill(flat.values, named)
    assert torch.equal(flat.values, before)
    with pytest.raises(ValueError, match=r"'heads\.value\.bias'.*want \(1,\), found \(2,\)"):
        flat.layout.fill(flat.values, named | {"heads.value.bias": torch.zeros(2)})
    del named["heads.policy.bias"]
    with pytest.raises(ValueError, match=r"'heads\.policy\.bias'.*found nothing"):
        flat.layout.fill(flat.values, named)


@given(count=st.integers(1, 400), parts=st.integers(1, 8))
def test_padding_and_cuts_are_multiples_of_64(count: int, parts: int) -> None:
    layout = Layout(nn.ParameterDict({"only": nn.Parameter(torch.zeros(count))}))
    assert layout.count == count
    assert layout.size % 64 == 0
    assert 0 <= layout.size - count < 64
    if parts > layout.size // 64:
        said = rf"--servers {parts}: the network has only {count} "
        with pytest.raises(ColobusError, match=said):
            layout.cut(parts)
        return
    cuts = layout.cut(parts)
    covered = np.concatenate([np.arange(layout.size)[c] for c in cuts])
    assert covered.tolist() == list(range(layout.size))
    sizes = [c.stop - c.start for c in cuts]
    assert all(size % 64 == 0 for size in sizes)
    assert max(sizes) - min(sizes) <= 64


@pytest.mark.parametrize("limit", [0.01, 1.0, 1e6])
def test_clip_is_torchs(flat: FlatParameters, limit: float) -> None:
    flat.gradients.normal_(generator=torch.Generator().manual_seed(8))
    copy = nn.Parameter(flat.values.clone())
    copy.grad = flat.gradients.clone()
    want = nn.utils.clip_grad_norm_(copy, limit)
    norm, share = flat.clip(limit)
    assert norm.item() == pytest.approx(want.item(), rel=1e-5)
    assert share.item() == (want.item() > limit)
    torch.testing.assert_close(flat.gradients, copy.grad, rtol=1e-5, atol=0)


def test_tensors_are_clipped_by_their_average_norm() -> None:
    """Two of three are above 0.1 times their elements: (3, 4) has a norm of 5, (-8) one of 8."""
    module = nn.Module()
    module.large, module.small = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    module.calm, module.still = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(3))
    flat = FlatParameters(module)
    for name, gradient in {"large": [3.0, 4.0], "small": [-8.0], "calm": [0.1] * 4}.items():
        module.get_parameter(name).grad.copy_(torch.tensor(gradient))  # type: ignore[union-attr]
    norm, share = flat.clip_tensors(0.1)
    assert norm.item() == pytest.approx((25 + 64 + 0.04) ** 0.5)
    assert share.item() == 0.5
    got = torch.cat([p.grad for p in module.parameters() if p.grad is not None])
    want = [0.12, 0.16, -0.1, 0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0]
    torch.testing.assert_close(got, torch.tensor(want))


def test_other_types_and_parameters_with_gaps_are_refused() -> None:
    module = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"is torch\.float64"):
        FlatParameters(nn.Linear(2, 2).double())
    module.weight.data = torch.zeros(2, 4)[:, ::2]
    with pytest.raises(ValueError, match="'weight' has gaps or overlaps"):
        FlatParameters(module)


@pytest.mark.parametrize("length", [1, 2, 5, 64, 100])
def test_sums_at_once_are_those_of_the_loop(length: int) -> None:
    rng = np.random.default_rng(11)
    terms = rng.normal(size=(3, length))
    factors = rng.choice([0.0, 0.5, 0.99], size=(3, length))
    want, after = np.zeros_like(terms), np.zeros(3)
    for t in reversed(range(length)):
        after = want[:, t] = terms[:, t] + factors[:, t] * after
    found = returns.backward_sums(*(torch.from_numpy(x).float() for x in (terms, factors)))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_the_median_is_torchs(share: float) -> None:
    rng = np.random.default_rng(11)
    for count in (1, 2, 7, 64):
        values = torch.from_numpy(rng.normal(size=count)).float()
        ignored = torch.from_numpy(rng.random(count) < share)
        want = values.masked_fill(ignored, float("nan")).nanmedian().nan_to_num(-np.inf)
        assert torch.equal(losses.median_of(values, ignored), want)


def test_frames_of_the_game_before_are_blanked_alike() -> None:
    rng = np.random.default_rng(11)
    ages = torch.from_numpy(rng.integers(0, 6, 50))
    stacks = torch.from_numpy(rng.normal(size=(50, 4, 2, 3)))
    black = torch.full((2, 3), -7.0, dtype=stacks.dtype)
    want, found = blank(stacks.clone(), ages, black), blank_by_age(stacks.clone(), ages, black)
    assert torch.equal(found, want)
    assert not torch.equal(found, stacks)
