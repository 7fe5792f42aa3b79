"""What a run needs is compared with what there is, before it is started."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from conftest import catch
from gelada.cli.show import imagined_start
from gelada.core.errors import GeladaError
from gelada.ops.flat import Layout
from gelada.training import limits
from gelada.training.limits import check_limits, imagined_network, memory
from gelada.training.presets import PRESETS
from gelada.training.start import make_network


@pytest.mark.parametrize("name", ["pong", "catch", "dba3c-catch", "apex-pong", "pqn-pong"])
def test_the_imagined_network_is_as_large_as_the_real_one(name: str) -> None:
    experiment = PRESETS[name]
    real, imagined = make_network(experiment, imagined_start(experiment)), imagined_network(
        experiment
    )  # fmt: skip
    assert all(parameter.is_meta for parameter in imagined.parameters())
    ours, theirs = memory(experiment, imagined), memory(experiment, real)
    assert ours.keys() == theirs.keys() <= limits.FLAGS.keys()
    for part, needed in theirs.items():
        assert ours[part] == pytest.approx(needed, rel=0.1, abs=2**20), part


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_an_estimate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available_memory", lambda: 2**50)
    monkeypatch.setattr(limits, "available_threads", lambda: 10**6)
    check_limits(PRESETS[name], here=True)


def test_what_does_not_fit_names_the_largest_part_and_its_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = PRESETS["pong"]
    monkeypatch.setattr(limits, "available_memory", lambda: 2**31)
    check_limits(base, here=True)
    wide = replace(base, shape=replace(base.shape, random_steps=10**7))
    with pytest.raises(GeladaError, match=r"most of it for input statistics, .*--random-steps"):
        check_limits(wide, here=True)
    check_limits(wide, here=False)  # in the processes of a cluster
    monkeypatch.setattr(limits, "available_memory", lambda: None)  # unknown
    check_limits(wide, here=True)


def test_more_servers_than_parts_of_the_network_are_refused() -> None:
    experiment = catch(1000)
    few = replace(
        experiment,
        network=replace(experiment.network, width=1, stack=1),
        shape=replace(experiment.shape, servers=32),
    )
    most = Layout(imagined_network(few)).size // 64
    for here in (True, False):
        with pytest.raises(GeladaError, match=rf"^--servers 32: .* enough for {most}; "):
            check_limits(few, here)
    check_limits(replace(few, shape=replace(few.shape, servers=most)), here=True)


def test_threads_and_open_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available_threads", lambda: 20)
    with pytest.raises(GeladaError, match=r"^--actors 2: the run needs about \d+ threads, and 20"):
        check_limits(catch(1000), here=True)
    monkeypatch.setattr(limits, "available_threads", lambda: None)
    monkeypatch.setattr(limits, "available_memory", lambda: None)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 32))
    with pytest.raises(GeladaError, match=r"may open 32 files, and a run needs 64; .*ulimit -n"):
        check_limits(catch(1000), here=True)
