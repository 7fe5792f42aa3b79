"""Parameters of a checkpoint in the network of an agent."""

from __future__ import annotations

import torch

from gelada.core.errors import GeladaError
from gelada.nets.network import Network


def fill(net: Network, parameters: dict[str, torch.Tensor]) -> None:
    """Copy parameters by name into a network.

    Raises:
        GeladaError: if they are those of another network.
    """
    own = dict(net.named_parameters())
    for name in sorted(own.keys() | parameters.keys()):
        wanted = list(own[name].shape) if name in own else None
        found = list(parameters[name].shape) if name in parameters else None
        if found is not None and parameters[name].dtype != torch.float32:
            raise GeladaError(f"has {name} in {parameters[name].dtype}, want float32")
        if wanted != found:
            raise GeladaError(
                f"does not fit the network of its config.json: {name} is "
                f"{found or 'missing'}, want {wanted or 'none'}; play it with the version of "
                "Gelada that trained it"
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(parameters[name])
