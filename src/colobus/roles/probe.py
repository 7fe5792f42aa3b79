"""Looks into the network of a learner now and then, with ``--probe-every``.

What it finds are metrics of layers and parameters, and of how the greedy action changes. Nothing of
it touches training: it reads parameters and gradients, and draws no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from colobus.algorithms.api import Algorithm
from colobus.core.types import Batch
from colobus.nets.network import Network
from colobus.nets.observations import some_stacks
from colobus.ops.flat import FlatParameters
from colobus.ops.losses import FORBIDDEN

OBSERVATIONS = 256
"""Of the first batch: the fixed batch that every look is at."""

DORMANT = 0.025
"""A unit is dormant if its mean output is at most this share of the mean of its layer."""

RECTIFIERS = {torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_, functional.relu}
"""Functions whose outputs are the units of a layer."""


class Probe:
    """Measures every so many versions; in between it repeats what it found.

    Found are, with layers counted from the input:

    - ``active_1``, …: share of a layer's outputs (of ReLU) that are not 0; ``output_1``: their mean
    - ``dormant_1``, …: share of its units, of a convolution its filters, that are `DORMANT` (Sokar
      et al. 2023, definition 3.1)
    - ``churn``: share of the observations whose greedy action is not that of the look before
    - ``greedy_gap``: mean difference of the two best scores
    - ``moved``: norm of the change of all parameters since the look before, over their norm
    - ``gradient_NAME`` and ``norm_NAME``: norms of a parameter's last gradient, after clipping, and
      of the parameter

    Args:
        algorithm: scores actions.
        every: versions.
    """

    def __init__(self, algorithm: Algorithm, every: int) -> None:
        self.values: dict[str, float] = {}
        self._algorithm, self._every = algorithm, every
        self._stacks: torch.Tensor | None = None
        self._actions: torch.Tensor | None = None  # greedy ones, of the look before
        self._before: torch.Tensor | None = None  # parameters of then

    @torch.no_grad()
    def look(self, flat: FlatParameters, batch: Batch, version: int) -> None:
        """Measure, if the version is one of those; the first batch's observations are kept."""
        net = flat.module
        assert isinstance(net, Network)
        if self._stacks is None:
            stacks = some_stacks(batch.frames, batch.ages, net.stack, OBSERVATIONS)
            self._stacks = stacks.to(flat.values.device)
            self._looked = (version - 1) // self._every
        before, self._looked = self._looked, version // self._every
        if before == self._looked:  # as a learner of several does not see every version
            return
        with net.as_played(), Layers() as layers:
            seen = net.preprocess(self._stacks)
            scores, _ = self._algorithm.scores(net, seen, net.initial_state(len(seen)))
        found = layers.found | self._greedy(scores) | self._parameters(flat)
        self.values = {name: float(value) for name, value in found.items()}

    def _greedy(self, scores: torch.Tensor) -> dict[str, torch.Tensor]:
        best = scores.topk(min(2, scores.shape[1]), dim=1).values
        actions = scores.argmax(dim=1)
        before, self._actions = self._actions, actions
        churn = {} if before is None else {"churn": (actions != before).float().mean()}
        forced = best[:, -1] <= FORBIDDEN  # only one action is allowed
        return churn | {"greedy_gap": (best[:, 0] - best[:, -1]).masked_fill(forced, 0.0).mean()}

    def _parameters(self, flat: FlatParameters) -> dict[str, torch.Tensor]:
        """Return norms by parameter, and how far all of them have moved."""
        norm, found = torch.linalg.vector_norm, dict[str, torch.Tensor]()
        for kind, vector in (("gradient", flat.gradients), ("norm", flat.values)):
            found |= {f"{kind}_{name}": norm(view) for name, view in flat.layout.views(vector)}
        if self._before is not None:
            found["moved"] = norm(flat.values - self._before) / norm(flat.values)
        self._before = flat.values.clone()
        return found


class Layers(TorchFunctionMode):
    """A context in which the outputs of all calls of ReLU are measured, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, torch.Tensor] = {}
        self._count = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, and measure its output if it is a ReLU's."""
        output = function(*args, **(kwargs or {}))
        if function in RECTIFIERS:
            self._count += 1
            self._measure(str(self._count), output.float())
        return output

    def _measure(self, layer: str, outputs: torch.Tensor) -> None:
        units = outputs.transpose(0, 1).flatten(1).mean(dim=1)  # outputs of ReLU: no absolute ones
        self.found[f"active_{layer}"] = (outputs != 0).float().mean()
        self.found[f"output_{layer}"] = outputs.mean()
        self.found[f"dormant_{layer}"] = (units <= DORMANT * units.mean()).float().mean()
