"""A run as a drawing: which roles there are, with which arguments, in which processes.

``plan.add(...)`` returns a handle that type-checks as the role itself, so passing handles to
other roles draws the circle, and the type checker reads along. Nothing is started: ``gelada show``
prints a plan, the checks count its nodes, and a place builds the roles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from gelada.core.timing import Clock

P = ParamSpec("P")
R = TypeVar("R")


class Active(Protocol):
    """A role that calls others: one thread each."""

    name: str
    clock: Clock
    finished: bool

    def step(self) -> None:
        """Do one piece of work; wait only for other roles."""


@runtime_checkable
class Passive(Protocol):
    """A role that answers; `close` wakes everybody who waits in it."""

    def close(self) -> None:
        """Stop answering."""


@dataclass(frozen=True)
class Handle:
    """Stands for a role until a place has built it."""

    name: str


@dataclass(frozen=True)
class Node:
    """One role of a plan: its name, class, arguments and the process it belongs to."""

    name: str
    make: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    process: str

    @property
    def kind(self) -> str:
        """The role's class name."""
        return self.make.__name__

    @property
    def active(self) -> bool:
        """Whether the role has a thread of its own."""
        return hasattr(self.make, "step")


@dataclass
class Plan:
    """Roles in the order in which they can be built."""

    nodes: list[Node] = field(default_factory=list)

    def add(
        self, name: str, process: str, make: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Draw a role; return its handle, which stands for the role in other roles' arguments.

        Raises:
            ValueError: if the name is taken.
        """
        if any(node.name == name for node in self.nodes):
            raise ValueError(f"the plan has two roles named {name!r}")
        self.nodes.append(Node(name, make, args, kwargs, process))
        return cast("R", Handle(name))

    def counts(self) -> Counter[str]:
        """Return how many roles there are of each class."""
        return Counter(node.kind for node in self.nodes)

    def build(
        self, own: Collection[str] | None = None, elsewhere: Callable[[str], Any] | None = None
    ) -> dict[str, Any]:
        """Build roles in this process; a handle becomes the object itself.

        Args:
            own: names of the roles to build (None: all).
            elsewhere: makes what stands for a role that is not built here, from its name.
        """
        built: dict[str, Any] = {}

        def resolve(value: Any) -> Any:
            if isinstance(value, Handle):
                if value.name not in built and elsewhere is not None:
                    return elsewhere(value.name)
                return built[value.name]
            if isinstance(value, list | tuple) and type(value) in (list, tuple):
                return type(value)(resolve(item) for item in value)
            return value

        for node in self.nodes:
            if own is not None and node.name not in own:
                continue
            args = [resolve(value) for value in node.args]
            kwargs = {name: resolve(value) for name, value in node.kwargs.items()}
            built[node.name] = node.make(*args, **kwargs)
        return built
