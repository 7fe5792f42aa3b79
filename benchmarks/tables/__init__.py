"""The tables of the results' pages, by the name that stands in the marks of a page."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lib.ledger import Results
from benchmarks.lib.table import Table
from benchmarks.tables import games, presets, speed

TABLES: dict[str, Callable[[Results], Table]] = {
    "pong": presets.pong,
    "algorithms": presets.algorithms,
    "gorila": presets.gorila,
    "appo": presets.appo,
    "dba3c": presets.dba3c,
    "dba3c-modes": presets.dba3c_modes,
    "dba3c-straggler": presets.dba3c_straggler,
    "dba3c-servers": presets.dba3c_servers,
    "dba3c-workers": presets.dba3c_workers,
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
