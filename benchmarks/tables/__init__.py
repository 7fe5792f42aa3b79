"""The tables of the results' pages, by the name that stands in the marks of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.lib.ledger import Results
from benchmarks.lib.table import Table
from benchmarks.tables import games, presets, speed

TABLES: dict[str, Callable[[Results], Table]] = {
    "pong": presets.pong,
    "algorithms": presets.algorithms,
    "gorila": presets.gorila,
    "appo": presets.appo,
    "dba3c": presets.dba3c,
    "dba3c-straggler": partial(presets.sleeping, what="dba3c-straggler", key="runs"),
    "dba3c-servers": partial(presets.sleeping, what="dba3c-servers", key="servers"),
    "dba3c-workers": partial(presets.sleeping, what="dba3c-workers", key="workers"),
    "dba3c-delays": presets.dba3c_delays,
    "ray-shares": presets.ray_shares,
    "ray-failures": presets.ray_failures,
    "breakout": games.breakout,
    "six-games": games.six,
    "means": games.means,
    "untuned-games": games.five,
    "limits": speed.limits,
    "peers-speed": speed.peers_speed,
    "peers-time": speed.peers_time,
    "gpu": speed.gpu,
}
