"""Optimizers of one flat slice. They are element-wise, so the cut into slices changes nothing.

The rules are the functions of ``torch.optim``, but for RMSProp, which TensorFlow and the papers
have otherwise. An optimizer's state is flat tensors by name, so a checkpoint can store them beside
the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.radam import radam
from torch.optim.sgd import sgd

from colobus.core.fields import DECAY, POSITIVE, OnlyWith

ADAM = OnlyWith(
    "with --optimizer adam or radam", lambda group: group.optimizer in ("adam", "radam")
)
DECAYING = OnlyWith(
    "with --optimizer rmsprop or adadelta", lambda group: group.optimizer in ("rmsprop", "adadelta")
)
MOVING = OnlyWith(
    "with --optimizer rmsprop or sgd", lambda group: group.optimizer in ("rmsprop", "sgd")
)
DIVIDING = OnlyWith("with another --optimizer than sgd", lambda group: group.optimizer != "sgd")


@dataclass(frozen=True)
class OptimizerSettings:
    """Which optimizer the parameter servers run."""

    optimizer: Literal["adam", "radam", "rmsprop", "adagrad", "adadelta", "sgd"] = "adam"
    """How a gradient becomes a step; rmsprop and sgd take --momentum."""
    beta1: Annotated[float, DECAY, ADAM] = 0.9
    """Adam, RAdam: decay of the mean of gradients."""
    beta2: Annotated[float, DECAY, ADAM] = 0.999
    """Adam, RAdam: decay of the mean of squared gradients."""
    decay: Annotated[float, DECAY, DECAYING] = 0.99
    """RMSProp, AdaDelta: decay of the mean of squares."""
    momentum: Annotated[float, DECAY, MOVING] = 0.0
    """RMSProp, SGD: momentum."""
    epsilon: Annotated[float, POSITIVE, DIVIDING] = 1e-5
    """Keeps the division finite (Adam, RAdam, AdaGrad: outside the root; RMSProp, AdaDelta: in
    it)."""
    average: Annotated[float, DECAY] = 0.0
    """Decay, per optimizer step, of a mean of the parameters with which agents are evaluated,
    filmed and exported, and runs by --from begin; the run itself never uses it (0: no mean)."""


Step = Callable[..., None]
"""Steps in place, given lists of one vector float32[P] each: parameters, gradient, and what the
state has; and by name the numbers of its rule."""


def rmsprop(
    values: list[torch.Tensor],
    gradients: list[torch.Tensor],
    squares: list[torch.Tensor],
    momenta: list[torch.Tensor],
    *,
    lr: float,
    decay: float,
    momentum: float,
    eps: float,
) -> None:
    """Step by RMSProp as TensorFlow and the A3C and IMPALA papers have it: epsilon in the root.

    ``g <- decay g + (1 - decay) d^2``; ``m <- momentum m + lr d / sqrt(g + epsilon)``;
    ``theta <- theta - m``. The mean square starts at 1, as in TensorFlow 1.
    """
    (square,), (moving,), (gradient,) = squares, momenta, gradients
    square.mul_(decay).addcmul_(gradient, gradient, value=1.0 - decay)
    moving.mul_(momentum).add_(gradient / (square + eps).sqrt_(), alpha=lr)
    values[0].sub_(moving)


def rectified(
    *vectors: list[torch.Tensor],
    state_steps: list[torch.Tensor],
    beta2: float,
    eps: float,
    **numbers: Any,
) -> None:
    """Step by rectified Adam (Liu et al. 2020, algorithm 2), whose first steps need no warm-up.

    Epsilon is added to the root as in Adam, after its bias is corrected; torch adds it before.
    """
    step: Step = radam
    before = eps * (1.0 - beta2 ** (float(state_steps[0]) + 1.0)) ** 0.5
    step(*vectors, state_steps=state_steps, beta2=beta2, eps=before, **numbers)


class Rule(NamedTuple):
    """How an optimizer steps."""

    step: Step
    starts: dict[str, float]
    """What the vectors of its state begin with, by name."""
    numbers: Callable[[OptimizerSettings], dict[str, Any]]
    """Named arguments of the step besides the learning rate."""
    counts: bool = True
    """Whether it wants ``state_steps``, the number of steps before."""


PLAIN: dict[str, Any] = {"weight_decay": 0.0, "maximize": False, "foreach": False}
"""What all of torch's are told: down the gradient, no decay, and one vector after the other."""

RULES: dict[str, Rule] = {
    # Kingma & Ba 2015, algorithm 1; fused, it goes through memory once (docs/speed.md)
    "adam": Rule(
        adam,
        {"mean": 0.0, "square": 0.0},
        lambda s: {
            "beta1": s.beta1,
            "beta2": s.beta2,
            "eps": s.epsilon,
            "max_exp_avg_sqs": [],
            "fused": True,
            "amsgrad": False,
            **PLAIN,
        },
    ),
    "radam": Rule(
        rectified,
        {"mean": 0.0, "square": 0.0},
        lambda s: {"beta1": s.beta1, "beta2": s.beta2, "eps": s.epsilon, **PLAIN},
    ),
    "rmsprop": Rule(
        rmsprop,
        {"square": 1.0, "momentum": 0.0},
        lambda s: {"decay": s.decay, "momentum": s.momentum, "eps": s.epsilon},
        counts=False,
    ),
    # Duchi et al. 2011, figure 1, diagonal; the sum starts at 0.1, as in TensorFlow 1
    "adagrad": Rule(
        adagrad,
        {"square": 0.1},
        lambda s: {"eps": s.epsilon, "lr_decay": 0.0, **PLAIN},
    ),
    # Zeiler 2012, algorithm 1; the paper's own learning rate is 1
    "adadelta": Rule(
        adadelta,
        {"square": 0.0, "moved": 0.0},
        lambda s: {"rho": s.decay, "eps": s.epsilon, **PLAIN},
    ),
    # with heavy-ball momentum (Polyak 1964) in TensorFlow's form: a new learning rate also scales
    # what earlier gradients left
    "sgd": Rule(
        sgd,
        {"momentum": 0.0},
        lambda s: {"momentum": s.momentum, "dampening": 0.0, "nesterov": False, **PLAIN},
        counts=False,
    ),
}


@dataclass(eq=False)
class Optimizer:
    """Steps one flat slice of parameters in place."""

    values: torch.Tensor  # the slice, float32[P]
    settings: OptimizerSettings  # which rule, and its numbers
    scales: torch.Tensor | None = None
    """float32[P], factors of the learning rate (None: 1 for all parameters)."""

    def __post_init__(self) -> None:
        self._rule = rule = RULES[self.settings.optimizer]
        self._numbers = rule.numbers(self.settings)
        self._vectors = {name: torch.full_like(self.values, x) for name, x in rule.starts.items()}
        self._count = torch.zeros((), dtype=torch.float64)
        self._decay = self.settings.average
        self._means = {"average": self.values.clone()} if self._decay else {}

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        before = None if self.scales is None else self.values.clone()
        vectors = ([each] for each in (self.values, gradient, *self._vectors.values()))
        numbers = self._numbers | {"lr": learning_rate}
        if self._rule.counts:
            device = gradient.device if "fused" in numbers else None  # the others read it
            count = torch.full((), float(self._count), dtype=torch.float32, device=device)
            numbers["state_steps"] = [count]
        self._rule.step(*vectors, **numbers)
        self._count += 1
        if before is not None and self.scales is not None:
            torch.lerp(before, self.values, self.scales, out=self.values)
        for mean in self._means.values():  # a plain mean at first, as there is nothing before it
            mean.lerp_(self.values, max(1.0 - self._decay, 1.0 / float(self._count)))

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state itself, not a copy: float32[P] tensors and the scalar ``count``."""
        return {**self._vectors, **self._means, "count": self._count}
