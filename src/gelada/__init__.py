"""Gelada: distributed deep reinforcement learning that learns Atari games from the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gelada.evaluation.agent import load as load
    from gelada.training.run import train as train

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and not before: ``gelada --help`` needs no torch."""
    if name == "train":
        from gelada.training.run import train

        return train
    if name == "load":
        from gelada.evaluation.agent import load

        return load
    raise AttributeError(f"module 'gelada' has no attribute {name!r}")
