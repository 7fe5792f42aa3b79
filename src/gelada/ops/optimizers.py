"""Optimizers of one flat slice. They are element-wise, so the cut into slices changes nothing.

Each has ``step(gradient, learning_rate)``, which writes the parameters in place, and ``state()``
with flat tensors by name, so a checkpoint can store them beside the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import torch

from gelada.core.fields import DECAY, POSITIVE, OnlyWith

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


SLOTS: dict[str, int] = {
    "adam": 2,
    "radam": 2,
    "rmsprop": 2,
    "adagrad": 1,
    "adadelta": 2,
    "sgd": 1,
}
"""Number of vectors, each as long as the parameters, in an optimizer's state."""


class Optimizer(Protocol):
    """Steps one flat slice of parameters in place."""

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state itself, not a copy: float32[P] tensors and the scalar ``count``."""


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1).

    ``m <- beta1 m + (1 - beta1) d``; ``v <- beta2 v + (1 - beta2) d^2``;
    ``theta <- theta - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)``.
    The step is the kernel of ``torch.optim.Adam(fused=True)``, which goes through memory once
    (docs/speed.md); importing ``torch.optim`` itself would cost a second at the start.
    """

    def __init__(self, values: torch.Tensor, settings: OptimizerSettings) -> None:
        self._values = values
        self._settings = settings
        self._state = {
            "mean": torch.zeros_like(values),
            "square": torch.zeros_like(values),
            "count": torch.zeros((), dtype=torch.float64),
        }

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        settings, state = self._settings, self._state
        state["count"] += 1
        torch._fused_adam_(
            [self._values],
            [gradient],
            [state["mean"]],
            [state["square"]],
            [],
            [torch.full((), float(state["count"]), dtype=torch.float32, device=gradient.device)],
            lr=learning_rate,
            beta1=settings.beta1,
            beta2=settings.beta2,
            eps=settings.epsilon,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state's ``mean`` and ``square`` (float32[P]) and ``count``."""
        return self._state


TRACTABLE = 5.0
"""Degrees of freedom above which the variance of Adam's step can be rectified, as torch and optax
have it (the paper's algorithm says 4)."""


class RAdam:
    """Rectified Adam (Liu et al. 2020, algorithm 2): Adam whose first steps need no warm-up.

    With ``r_inf = 2 / (1 - beta2) - 1`` and ``r_t = r_inf - 2 t beta2^t / (1 - beta2^t)`` degrees
    of freedom: while ``r_t <= 5``, ``theta <- theta - lr m_hat``; then ``theta <- theta - lr c_t
    m_hat / (sqrt(v_hat) + epsilon)`` with ``c_t = sqrt((r_t - 4)(r_t - 2) r_inf / ((r_inf - 4)
    (r_inf - 2) r_t))``. Means and their corrections are Adam's.
    """

    def __init__(self, values: torch.Tensor, settings: OptimizerSettings) -> None:
        self._values = values
        self._settings = settings
        self._state = {
            "mean": torch.zeros_like(values),
            "square": torch.zeros_like(values),
            "count": torch.zeros((), dtype=torch.float64),
        }
        self._scratch = torch.empty_like(values)

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        beta1, beta2 = self._settings.beta1, self._settings.beta2
        mean, square = self._state["mean"], self._state["square"]
        self._state["count"] += 1
        count = int(self._state["count"])
        mean.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        rate = learning_rate / (1.0 - beta1**count)
        most = 2.0 / (1.0 - beta2) - 1.0
        now = most - 2.0 * count * beta2**count / (1.0 - beta2**count)
        if now <= TRACTABLE:
            self._values.sub_(mean, alpha=rate)
            return
        share = (now - 4.0) * (now - 2.0) * most / ((most - 4.0) * (most - 2.0) * now)
        root = torch.div(square, 1.0 - beta2**count, out=self._scratch).sqrt_()
        root.add_(self._settings.epsilon)
        self._values.addcdiv_(mean, root, value=-rate * share**0.5)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the live ``mean`` and ``square`` (float32[P]) and ``count``."""
        return self._state


class RMSProp:
    """RMSProp as TensorFlow and the A3C and IMPALA papers have it: epsilon inside the root.

    ``g <- decay g + (1 - decay) d^2``; ``m <- momentum m + lr d / sqrt(g + epsilon)``;
    ``theta <- theta - m``. The mean square starts at 1, as in TensorFlow 1.
    """

    def __init__(self, values: torch.Tensor, settings: OptimizerSettings) -> None:
        self._values = values
        self._settings = settings
        self._state = {
            "square": torch.ones_like(values),
            "momentum": torch.zeros_like(values),
            "count": torch.zeros((), dtype=torch.float64),
        }

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        square, momentum = self._state["square"], self._state["momentum"]
        square.mul_(self._settings.decay)
        square.addcmul_(gradient, gradient, value=1.0 - self._settings.decay)
        scaled = gradient / (square + self._settings.epsilon).sqrt_()
        momentum.mul_(self._settings.momentum).add_(scaled, alpha=learning_rate)
        self._values.sub_(momentum)
        self._state["count"] += 1

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state's ``square`` and ``momentum`` (float32[P]) and ``count``."""
        return self._state


class AdaGrad:
    """AdaGrad (Duchi et al. 2011, figure 1, diagonal).

    ``g <- g + d^2``; ``theta <- theta - lr d / (sqrt(g) + epsilon)``, with epsilon outside the
    root as the paper's delta. The sum starts at 0.1, as in TensorFlow 1, which has no epsilon.
    """

    def __init__(self, values: torch.Tensor, settings: OptimizerSettings) -> None:
        self._values = values
        self._settings = settings
        self._state = {
            "square": torch.full_like(values, 0.1),
            "count": torch.zeros((), dtype=torch.float64),
        }
        self._scratch = torch.empty_like(values)

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        square = self._state["square"].addcmul_(gradient, gradient)
        root = torch.sqrt(square, out=self._scratch).add_(self._settings.epsilon)
        self._values.addcdiv_(gradient, root, value=-learning_rate)
        self._state["count"] += 1

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state's ``square``, the sum of squares (float32[P]), and ``count``."""
        return self._state


class AdaDelta:
    """AdaDelta (Zeiler 2012, algorithm 1); the paper's own learning rate is 1.

    ``g <- decay g + (1 - decay) d^2``; ``x = d sqrt(s + epsilon) / sqrt(g + epsilon)``;
    ``s <- decay s + (1 - decay) x^2``; ``theta <- theta - lr x``. As in TensorFlow, ``s`` is of
    steps before they are scaled by the learning rate.
    """

    def __init__(self, values: torch.Tensor, settings: OptimizerSettings) -> None:
        self._values = values
        self._settings = settings
        self._state = {
            "square": torch.zeros_like(values),
            "moved": torch.zeros_like(values),
            "count": torch.zeros((), dtype=torch.float64),
        }
        self._scratch = torch.empty_like(values), torch.empty_like(values)

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        decay, epsilon = self._settings.decay, self._settings.epsilon
        square, moved = self._state["square"], self._state["moved"]
        square.mul_(decay).addcmul_(gradient, gradient, value=1.0 - decay)
        below = torch.add(square, epsilon, out=self._scratch[0])
        above = torch.add(moved, epsilon, out=self._scratch[1])
        change = above.div_(below).sqrt_().mul_(gradient)
        moved.mul_(decay).addcmul_(change, change, value=1.0 - decay)
        self._values.sub_(change, alpha=learning_rate)
        self._state["count"] += 1

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state's ``square`` and ``moved`` (float32[P]) and ``count``.

        They are the mean squares of gradients and of steps.
        """
        return self._state


class SGD:
    """Stochastic gradient descent with heavy-ball momentum (Polyak 1964).

    ``m <- momentum m + d``; ``theta <- theta - lr m``: TensorFlow's form, in which a new learning
    rate also scales what earlier gradients left. Momentum 0 is plain descent.
    """

    def __init__(self, values: torch.Tensor, settings: OptimizerSettings) -> None:
        self._values = values
        self._settings = settings
        self._state = {
            "momentum": torch.zeros_like(values),
            "count": torch.zeros((), dtype=torch.float64),
        }

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against ``gradient`` (float32[P])."""
        momentum = self._state["momentum"].mul_(self._settings.momentum).add_(gradient)
        self._values.sub_(momentum, alpha=learning_rate)
        self._state["count"] += 1

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state's ``momentum`` (float32[P]) and ``count``."""
        return self._state


def make_optimizer(values: torch.Tensor, settings: OptimizerSettings) -> Optimizer:
    """Return the chosen optimizer over the slice ``values`` (float32[P], stepped in place)."""
    match settings.optimizer:
        case "adam":
            return Adam(values, settings)
        case "radam":
            return RAdam(values, settings)
        case "rmsprop":
            return RMSProp(values, settings)
        case "adagrad":
            return AdaGrad(values, settings)
        case "adadelta":
            return AdaDelta(values, settings)
        case "sgd":
            return SGD(values, settings)
