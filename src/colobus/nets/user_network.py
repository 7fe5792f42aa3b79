"""Torsos and heads that functions of the user make (docs/extending.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from colobus.core.errors import ColobusError
from colobus.core.functions import find_function
from colobus.nets.config import NetworkSettings
from colobus.nets.heads import Head


class UserTorso(nn.Module):
    """A torso made by ``settings.own_torso``.

    The function is called with the settings of the network, the shape (H of all planes together, W)
    of a frame, and the number of planes. It returns a module that computes the hidden layer
    float32[M, width] from standardised stacks [M, K, H, W].

    Raises:
        ColobusError: if the function cannot be found or makes something else.
    """

    block = 1  # stacks are not cut into blocks

    def __init__(
        self, settings: NetworkSettings, frame_shape: tuple[int, int], planes: int
    ) -> None:
        super().__init__()
        name = settings.own_torso
        made = find_function(name)(settings, frame_shape, planes)
        if not isinstance(made, nn.Module):
            raise ColobusError(
                f"--own-torso {name}: returned {type(made).__name__}, no torch module"
            )
        self.own = made
        self.outputs = settings.width  # of one observation; what lies before is not known
        kept = {key: buffer.clone() for key, buffer in made.named_buffers()}
        try:
            with torch.no_grad():
                hidden = self.own(torch.zeros(2, settings.stack, *frame_shape))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ColobusError(
                f"--own-torso {name}: cannot take 2 stacks of {settings.stack} frames "
                f"{frame_shape}: {str(error).partition(chr(10))[0]}"
            ) from None
        if any(not torch.equal(kept[key], buffer) for key, buffer in made.named_buffers()):
            raise ColobusError(
                f"--own-torso {name}: keeps statistics while it learns, such as BatchNorm, which "
                "neither actors nor checkpoints would have; take LayerNorm or GroupNorm"
            )
        if not isinstance(hidden, torch.Tensor) or hidden.shape != (2, settings.width):
            found = (
                list(hidden.shape) if isinstance(hidden, torch.Tensor) else type(hidden).__name__
            )
            raise ColobusError(
                f"--own-torso {name}: its output for 2 stacks of {settings.stack} frames "
                f"{frame_shape} is {found}, must be [2, {settings.width}]: the --width of the "
                "hidden layer"
            )

    def forward(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer [M, width] for stacks [M, K, H, W]."""
        hidden: torch.Tensor = self.own(stacks)
        return hidden


def user_heads(name: str, heads: dict[str, Head], width: int) -> dict[str, Head]:
    """Return the heads that a function of the user makes of the algorithm's.

    The function is called with the algorithm's heads by name and the width of the hidden layer, and
    returns heads of the same names in the same order.

    Raises:
        ColobusError: if the function cannot be found or makes something else.
    """
    made: Any = find_function(name)(dict(heads), width)
    fits = isinstance(made, dict) and all(isinstance(head, Head) for head in made.values())
    if not fits or list(made) != list(heads):
        found = list(made) if isinstance(made, dict) else type(made).__name__
        raise ColobusError(
            f"--own-heads {name}: returned {found}, must be a dictionary of "
            f"colobus.nets.heads.Head with the names {list(heads)}"
        )
    hidden = torch.zeros(2, width)
    for each, head in heads.items():
        with torch.no_grad():
            wanted, outputs = head(hidden).shape, made[each](hidden).shape
        if wanted != outputs:
            raise ColobusError(
                f"--own-heads {name}: the output of {each!r} is {list(outputs)} for 2 samples, "
                f"must be {list(wanted)}"
            )
    return dict(made)
