"""A call that has to wait, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest

from colobus.core.errors import Closed

T = TypeVar("T")


def on_a_thread(call: Callable[[], T]) -> Future[T]:
    """Begin a call; what it returns or raises is that of the future."""
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found


def assert_closed(*calls: Callable[[], object]) -> None:
    """Each of these calls is refused, or ended, since the run stops."""
    for call in calls:
        with pytest.raises(Closed):
            call()
