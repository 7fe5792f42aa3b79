"""Roles: plain classes that do not know where the others live.

Passive roles (replay, ParameterServer, Tracker) answer and call nobody; only ``sample`` and
``pull`` wait. Active roles (Actor, Learner) call; each has a ``step()``, and no two of them ever
wait for each other in a circle.
"""
