"""A plan: handles, the order of building, and what can be read without starting anything."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import catch, short_pong
from gelada.draw import draw
from gelada.place.plan import Handle, Plan
from gelada.presets import Experiment
from gelada.start import begin


class Part:
    made: list[str] = []  # noqa: RUF012  # a log

    def __init__(self, name: str, *others: Any, **more: Any) -> None:
        self.name, self.others, self.more = name, others, more
        Part.made.append(name)

    def close(self) -> None: ...


class Worker(Part):
    def step(self) -> None: ...


def test_handles_become_the_objects_themselves() -> None:
    plan = Plan()
    a = plan.add("a", "main", Part, "a")
    b = plan.add("b", "main", Part, "b", a)
    plan.add("c", "main", Worker, "c", [a, b], (b, 7), more={"as it is": a})
    Part.made.clear()
    built = plan.build()
    assert Part.made == ["a", "b", "c"]
    assert built["b"].others == (built["a"],)
    assert built["c"].others == ([built["a"], built["b"]], (built["b"], 7))
    assert built["c"].more == {
        "more": {"as it is": Handle("a")}
    }  # inside a dict nothing is looked for


def test_drawing_builds_nothing() -> None:
    Part.made.clear()
    plan = Plan()
    plan.add("a", "main", Part, "a")
    assert Part.made == []
    assert [(n.name, n.kind, n.bundle, n.active) for n in plan.nodes] == [
        ("a", "Part", "main", False)
    ]


def test_a_plan_can_be_built_twice() -> None:
    plan = Plan()
    plan.add("b", "main", Part, "b", plan.add("a", "main", Part, "a"))
    one, two = plan.build(), plan.build()
    assert one["a"] is not two["a"]
    assert two["b"].others == (two["a"],)


def test_two_roles_cannot_have_one_name() -> None:
    plan = Plan()
    plan.add("a", "main", Part, "a")
    with pytest.raises(ValueError, match="two roles named 'a'"):
        plan.add("a", "main", Worker, "a")


@pytest.mark.parametrize(
    "experiment", [catch(1000), short_pong(1, servers=3)], ids=["catch", "pong"]
)
def test_the_circle_is_drawn_with_the_shapes_counts(experiment: Experiment) -> None:
    shape = experiment.shape
    plan = draw(experiment, begin(experiment), None)
    assert plan.counts() == {
        "Actor": shape.actors,
        "Learner": 1,
        "ParameterServer": shape.servers,
        "Replay": 1,
        "Tracker": 1,
    }
    active = [node.name for node in plan.nodes if node.active]
    assert active == [*(f"actor-{i}" for i in range(shape.actors)), "learner-0"]
    assert {node.bundle for node in plan.nodes} == {"main"}
