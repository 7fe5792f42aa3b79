"""Algorithms: one frozen dataclass each. Fields are hyper-parameters; methods act and learn."""
