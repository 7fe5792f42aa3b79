"""Inline: all roles in the calling thread, in a fixed order. For tests, and the oracle of the
deterministic mode."""

from __future__ import annotations

from typing import Any

import torch

from gelada.runtime.graph import Active, Plan


class Inline:
    """Calls ``step()`` of the active roles in the plan's order until one of them has finished.

    Passive roles must be planned with patience 0: a wait that would never end is then an error.
    """

    def __init__(self, plan: Plan) -> None:
        self.roles: dict[str, Any] = plan.build()
        self.active: list[Active] = [self.roles[n.name] for n in plan.nodes if n.active]

    def run(self) -> None:
        """Run to the end."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            while not any(role.finished for role in self.active):
                for role in self.active:
                    role.step()
        finally:
            torch.set_num_threads(before)
