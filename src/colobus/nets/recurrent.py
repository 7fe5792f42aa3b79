"""The LSTM of a recurrent network, for one step of acting and for whole sequences of learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from colobus.nets.config import LinearInit, start_linear


class LSTM(nn.Module):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate of Gers et al. 2000).

    With the input ``x``, the output before ``h`` and the cell before ``c``:

        g = tanh(W_g x + U_g h + b_g)      i, f, o = sigmoid(W x + U h + b), each its own
        c' = f c + i g                     h' = o tanh(c')

    The state of ``N`` games is float32[N, 2 * width]: outputs, then cells. The bias of the forget
    gate ``f`` is 1 at first, so that the cell keeps what it holds (Jozefowicz et al. 2015).

    Args:
        width: units of the input and of the output.
        init: initial weights.
    """

    def __init__(self, width: int, init: LinearInit) -> None:
        super().__init__()
        self.width = width
        self.outputs = 12 * width  # memory for one step in float32 values: gates, states, inputs
        self.inputs = nn.Linear(width, 4 * width)  # of the gates g, i, f and o, in this order
        self.memory = nn.Linear(width, 4 * width, bias=False)
        start_linear(self.inputs, init, 1.0)
        start_linear(self.memory, init, 1.0)
        with torch.no_grad():
            self.inputs.bias[2 * width : 3 * width] = 1.0

    def initial_state(self, count: int) -> torch.Tensor:
        """Return the state of ``count`` games at their beginning, zeros float32[count, 2 width]."""
        return self.memory.weight.new_zeros(count, 2 * self.width)

    def step(self, inputs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output float32[N, width] and the next state, for inputs float32[N, width]."""
        hidden, cell = state.split(self.width, 1)
        gates = self.inputs(inputs) + self.memory(hidden)
        candidate, others = gates.tensor_split([self.width], dim=1)
        admit, keep, show = others.sigmoid().chunk(3, dim=1)
        cell = keep * cell + admit * candidate.tanh()
        output = show * cell.tanh()
        return output, torch.cat([output, cell], dim=1)

    def unroll(
        self, inputs: torch.Tensor, state: torch.Tensor, begins: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Go through sequences, as `step` would do step by step.

        Args:
            inputs: float32[N, S, width].
            state: float32[N, 2 * width], before the first step; gets no gradient.
            begins: bool[N, S], the steps before which the state is set to 0.

        Returns:
            The outputs float32[N, S, width], and the state after the last step, which has no
            gradient.
        """
        projected = self.inputs(inputs.transpose(0, 1))
        keeps = (~begins).t().unsqueeze(2).to(projected.dtype)
        arguments = (projected, self.memory.weight, state, keeps)
        outputs, last = _Unroll.apply(*arguments)  # type: ignore[no-untyped-call]  # torch stub
        return outputs.transpose(0, 1), last


class _Unroll(torch.autograd.Function):
    """The steps of an LSTM after one matrix product for all inputs.

    The backward pass gathers the gradients of all gates and makes one matrix product for the
    weights, where autograd would make one for each step (docs/speed.md).
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: torch.Tensor,  # [S, N, 4 * width]
        weight: torch.Tensor,  # [4 * width, width]
        state: torch.Tensor,  # [N, 2 * width]
        keeps: torch.Tensor,  # [S, N, 1]: 0 where a game begins, else 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        width = weight.shape[1]
        gates = torch.empty_like(projected)
        outputs, before, cells, cells_before = (
            projected.new_empty(*projected.shape[:2], width) for _ in range(4)
        )
        hidden, cell = state.split(width, 1)
        for t in range(len(projected)):
            torch.mul(hidden, keeps[t], out=before[t])
            torch.mul(cell, keeps[t], out=cells_before[t])
            now = torch.addmm(projected[t], before[t], weight.t(), out=gates[t])
            now[:, :width].tanh_()
            now[:, width:].sigmoid_()
            candidate, admit, keep, show = now.split(width, 1)
            cell = torch.mul(keep, cells_before[t], out=cells[t]).addcmul_(admit, candidate)
            hidden = torch.mul(show, cell.tanh(), out=outputs[t])
        last = torch.cat([hidden, cell], dim=1)
        ctx.save_for_backward(weight, keeps, gates, before, cells, cells_before)
        ctx.mark_non_differentiable(last)
        return outputs, last

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weight, keeps, gates, before, cells, cells_before = ctx.saved_tensors
        steps, count, width = before.shape
        candidate, admit, keep, show = gates.split(width, 2)
        shown = cells.tanh()
        through = show * (1.0 - shown.square())  # from an output to its cell
        slopes = torch.cat([1.0 - candidate.square(), admit, keep, show], dim=2)
        slopes[:, :, width:].mul_(1.0 - gates[:, :, width:])
        slopes.mul_(torch.cat([admit, candidate, cells_before, shown], dim=2))
        slopes = slopes.view(steps, count, 4, width)
        of_gates = torch.empty_like(slopes)
        of_hidden = torch.zeros_like(before[0])
        of_cell = torch.zeros_like(of_hidden)
        for t in reversed(range(steps)):
            of_hidden += gradients[0][t]
            of_cell.addcmul_(of_hidden, through[t])
            torch.mul(slopes[t, :, :3], of_cell.unsqueeze(1), out=of_gates[t, :, :3])
            torch.mul(slopes[t, :, 3], of_hidden, out=of_gates[t, :, 3])
            of_hidden = (of_gates[t].flatten(1) @ weight).mul_(keeps[t])
            of_cell.mul_(keep[t]).mul_(keeps[t])
        rows = of_gates.view(steps * count, 4 * width)
        of_weight = rows.t() @ before.view(steps * count, width)
        return rows.view_as(gates), of_weight, None, None
