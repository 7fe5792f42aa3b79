"""The graph of a run: which roles there are, with which arguments, in which processes.

``graph.add(...)`` returns a handle that has the type of the role itself. Handles in the arguments
of other roles make the edges, and the type checker checks them. Nothing is built or started here:
``colobus show`` prints a graph, and a runtime builds its roles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar, cast

from colobus.core.errors import ColobusError, RoleFailed, place_of

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal[
    "actor", "learner", "server", "replay", "queue", "cache", "group", "loader", "tracker", "tracer"
]
"""What a role is. A view of several replays is a replay, and a cache passes on parameters that a
learner has pulled. A queue is a replay that is one of several, and the run can go on without it. A
group is where learners add up their gradients, a loader prepares batches, a tracer takes notes."""


@dataclass(frozen=True)
class Handle:
    """Stands for a role that is not built yet."""

    name: str


@dataclass(frozen=True)
class Part:
    """Stands for an object: one that belongs to a role and is built together with it, or a role."""

    make: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def part(make: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what stands for ``make(...)`` in a role's arguments; its own may have handles."""
    return cast("R", Part(make, args, kwargs))


def handles(value: Any) -> Iterator[str]:
    """Give the names of all roles that stand in an argument of a role."""
    if isinstance(value, Handle):
        yield value.name
    elif isinstance(value, Part):
        yield from handles((value.args, value.kwargs))
    elif type(value) in (list, tuple, dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from handles(each)


@dataclass(frozen=True)
class Node(Part):
    """One role of a graph: its class and arguments, name, kind and process."""

    name: str
    kind: Kind
    process: str

    @property
    def role(self) -> str:
        """The name of the class."""
        return self.make.__name__

    @property
    def active(self) -> bool:
        """Whether the role has work of its own, and so a thread."""
        return hasattr(self.make, "step")


@dataclass
class RoleGraph:
    """The roles of a run, in an order in which they can be built."""

    nodes: list[Node] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def add(
        self,
        name: str,
        kind: Kind,
        process: str,
        make: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Add a role; return a handle, which stands for it in the arguments of other roles.

        Raises:
            ValueError: if the name is taken.
        """
        if name in self._names:
            raise ValueError(f"the graph has two roles named {name!r}")
        self._names.add(name)
        self.nodes.append(Node(make, args, kwargs, name, kind, process))
        return cast("R", Handle(name))

    def counts(self) -> Counter[str]:
        """Return how many roles there are of each class."""
        return Counter(node.role for node in self.nodes)

    def names(self, kind: Kind) -> list[str]:
        """Return the names of all roles of a kind, in the order in which they were added."""
        return [node.name for node in self.nodes if node.kind == kind]

    def build(
        self, own: Collection[str] | None = None, elsewhere: Callable[[str], Any] | None = None
    ) -> dict[str, Any]:
        """Build roles in this process; a handle becomes the object itself.

        Args:
            own: names of the roles to build (None: all).
            elsewhere: returns what stands for a role that is not built here, from its name.

        Raises:
            RoleFailed: if a role raises an unexpected error; names the role and the line.
            ColobusError: if a role raises one.
        """
        built: dict[str, Any] = {}

        def resolve(value: Any) -> Any:
            if isinstance(value, Handle):
                if value.name not in built and elsewhere is not None:
                    return elsewhere(value.name)
                return built[value.name]
            if isinstance(value, Part):
                return value.make(
                    *map(resolve, value.args), **{k: resolve(v) for k, v in value.kwargs.items()}
                )
            if type(value) in (list, tuple):
                return type(value)(map(resolve, value))
            return value

        for node in self.nodes:
            if own is not None and node.name not in own:
                continue
            try:
                built[node.name] = resolve(node)
            except (ColobusError, OSError, MemoryError):
                raise
            except Exception as error:
                what = f"{place_of(error)}: {type(error).__name__}: {error}"
                raise RoleFailed(f"{node.name} could not be made at {what}") from error
        return built
