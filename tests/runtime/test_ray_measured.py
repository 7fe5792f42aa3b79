"""What `colobus bench` measures on a Ray of its own: not in a file whose tests share one."""

from __future__ import annotations

import pytest

from colobus.cli.throughput import trained
from colobus.runtime.groups import Cluster
from conftest import distributed_catch

pytestmark = pytest.mark.cluster


def test_a_measured_training_begins_when_processes_have_begun() -> None:
    """Before, there are the random steps of a run's start, which take no time."""
    cluster = Cluster(cpus=0.1, silence=60.0)  # nobody is blamed on a slow machine
    counts, waits = trained(distributed_catch(1), 3.0, cluster, None, lambda _: None)
    (began, first), (_, last) = counts[0], counts[-1]
    assert began > 0.0
    assert last > first
    assert "learner_waits" in waits
