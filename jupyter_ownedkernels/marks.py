"""Variables in the environments of processes by which it is known whose they are."""

from __future__ import annotations

PREFIX = "JUPYTER_OWNEDKERNELS_"
"""Of all variables that this package sets or reads."""
LAUNCH_MARKER = PREFIX + "LAUNCH"
"""The launch id: in every kernel, and what it starts unless that has a clean environment."""
OWNER_MARKER = PREFIX + "OWNER"
"""The owner id: in spawners, and so in keepers and in kernels that are forked."""
FIXTURE_MARKER = PREFIX + "FIXTURE"
"""In processes of test suites that look like strays and must not be cleaned."""
PARENT_VARIABLE = "JPY_PARENT_PID"
"""Jupyter's own: the process that a kernel was started for."""
MARKS = frozenset({LAUNCH_MARKER, OWNER_MARKER, FIXTURE_MARKER, PARENT_VARIABLE})
"""All that is ever looked at of another process's environment."""
