"""Roles: plain classes that do not know where the others live.

Active roles (Actor, Learner) call, each in its ``step()``, and nobody calls them. Passive roles
(replay, ParameterServer, Tracker) answer. A passive role may stand in front of others and call
them, such as several replays that are read as one, or a slow link; those call nobody. So no two
roles ever wait for each other in a circle.
"""
