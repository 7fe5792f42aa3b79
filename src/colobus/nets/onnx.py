"""Networks as ONNX graphs, which torch writes and ONNX Runtime computes on the CPU."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from colobus.core.errors import ColobusError, not_installed
from colobus.nets.network import Network

OPSET = 18
"""Of the operators: ONNX Runtime has had it since 1.14."""

Act = Callable[
    [Network, torch.Tensor, torch.Tensor | None], tuple[torch.Tensor, torch.Tensor | None]
]
"""From preprocessed stacks and recurrent state to scores and the next state: `Algorithm.scores`."""


class Acting(nn.Module):
    """The scores of the actions, as one module.

    Args:
        net: the network, or its copy for acting.
        act: how an algorithm acts.
        raw: whether observations are as the environment gives them, or already preprocessed.
    """

    def __init__(self, net: Network, act: Act, raw: bool) -> None:
        super().__init__()
        self.net, self._act, self._raw = net, act, raw

    def forward(self, observations: torch.Tensor, state: torch.Tensor | None = None) -> Any:
        """Return float32[N, A], and for a recurrent network the next state float32[N, S] too.

        Args:
            observations: [N, K, H, W], uint8 or preprocessed; of vectors float32[N, K, 1, D].
            state: float32[N, S] before them, for a recurrent network.
        """
        seen = self.net.preprocess(observations) if self._raw else observations
        scores, after = self._act(self.net, seen, state)
        return scores if state is None else (scores, after)


def export(acting: Acting, example: Sequence[torch.Tensor], flag: str) -> Any:
    """Return torch's ``ONNXProgram`` of the scores, for any number N of observations.

    Inputs are ``observations`` and, for a recurrent network, ``state``; outputs ``scores`` and
    ``next_state``. Initializers have the names of the parameters behind ``net.``; torch leaves out
    those that are 0.

    Args:
        acting: in evaluation mode.
        example: inputs of some observations, at least two.
        flag: that asked for it, for an error.

    Raises:
        ColobusError: if a package is missing, or torch cannot export the network.
    """
    packages(flag)
    inputs, outputs = ["observations", "state"], ["scores", "next_state"]
    acting(*example)  # first with numbers: what is cached while torch traces holds none
    with quiet():
        free: Any = torch.export.Dim("N")
        try:
            return torch.onnx.export(
                acting,
                tuple(example),
                input_names=inputs[: len(example)],
                output_names=outputs[: len(example)],
                opset_version=OPSET,
                dynamic_shapes=tuple({0: free} for _ in example),
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            why = str(error).strip().splitlines()[0]
            raise ColobusError(f"{flag}: torch cannot export this network: {why}") from None


class Sessions:
    """Makes sessions of ONNX Runtime that compute a network's scores from preprocessed stacks.

    Args:
        net: the network; torch exports a copy of it, once for all that act with it.
        act: how an algorithm acts.
        heads: names of the heads that it needs.
        flag: that asked for it, for an error.

    Raises:
        ColobusError: if a package is missing, or torch cannot export the network.
    """

    def __init__(self, net: Network, act: Act, heads: tuple[str, ...], flag: str) -> None:
        onnx, self._runtime = packages(flag)
        self._model = onnx.load_from_string(_exported(net, act, heads, flag))
        self._options = self._runtime.SessionOptions()
        self._options.intra_op_num_threads = 1
        self._initializers = {one.name: one for one in self._model.graph.initializer}

    def session(self, parameters: Mapping[str, torch.Tensor]) -> Any:
        """Return a session with these float32 parameters, by the names that the network has.

        They are constants of its graph, which ONNX Runtime lays out for its kernels beforehand.
        """
        for name, parameter in parameters.items():
            data = parameter.contiguous().numpy().tobytes()
            self._initializers[f"net.{name}"].raw_data = data
        return self._runtime.InferenceSession(
            self._model.SerializeToString(), self._options, providers=["CPUExecutionProvider"]
        )


@lru_cache(maxsize=1)
def _exported(net: Network, act: Act, heads: tuple[str, ...], flag: str) -> bytes:
    """Return the graph of a network's scores, whose weights are to be replaced."""
    acting, random = net.for_acting(heads, "float32"), torch.Generator().manual_seed(1)
    for parameter in acting.parameters():  # else zeros, and what is equal, are left out
        parameter.uniform_(0.5, 1.0, generator=random)
    stacks = torch.zeros(2, net.stack, *net.mean.shape)
    model = export(Acting(acting, act, raw=False), (stacks,), flag).model_proto
    there = {one.name: list(one.dims) for one in model.graph.initializer}
    for name, parameter in acting.named_parameters():
        if there.get(f"net.{name}") != list(parameter.shape):
            raise ColobusError(f"{flag}: torch exports this network without its {name}")
    found: bytes = model.SerializeToString()
    return found


def packages(flag: str) -> tuple[Any, Any]:
    """Return the modules onnx and onnxruntime.

    Args:
        flag: that asked for them, for an error.

    Raises:
        ColobusError: if a package of the extra ``onnx`` is missing.
    """
    try:
        importlib.import_module("onnxscript")  # exports
        return importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    except ImportError as error:
        raise not_installed(flag, error, "onnx") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's progress and its warnings about its own parts to itself."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        log.setLevel(level)
