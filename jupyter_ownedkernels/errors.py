"""Every error that this package raises on purpose.

OwnedKernelsError
├── LaunchError              a kernel could not be started by a spawner
│   ├── SpawnerUnavailable   no spawner can be had on this machine: launch as stock
│   ├── LaunchTimeout        the spawner did not answer in time; the lease is closed
│   └── WarmLost             nobody knows what a warm spawner did; the lease is closed
├── JournalError             a journal cannot be written, locked or read
├── UnknownKernel            no such kernel for this owner
├── StateConflict            the wish does not fit the state of the kernel any more
│   └── Superseded           a later wish for the same kernel came first
├── ScanUnavailable          processes cannot be seen on this system
└── BadRequest               input that no retry will make right
    ├── BadQuery             in the query of a request
    └── TooLarge             more than is even looked at

An error of ``exec`` itself (missing interpreter, bad folder, no permission) is not in
this tree: it is raised as the very ``OSError`` that ``subprocess.Popen`` would raise.
"""

from __future__ import annotations


class OwnedKernelsError(Exception):
    """Base of all errors of this package. ``code`` is stable, for programs."""

    code = "error"


class LaunchError(OwnedKernelsError):
    """A kernel could not be started by a spawner."""

    code = "launch_failed"
    stage = ""
    """Where it failed, as the keeper or spawner named it; empty when nobody could say."""


class SpawnerUnavailable(LaunchError):
    """No spawner can be had here. The caller launches as stock Jupyter would."""

    code = "spawner_unavailable"


class LaunchTimeout(LaunchError):
    """No answer within ``launch_timeout``. The lease is closed: no kernel can be left."""

    code = "launch_timeout"


class WarmLost(LaunchError):
    """It is not known whether a warm spawner forked the kernel. The lease is closed.

    The caller launches by exec, with a fresh connection file.
    """

    code = "warm_lost"


class JournalError(OwnedKernelsError):
    """A journal cannot be written, locked or read. Kernels start all the same."""

    code = "journal"


class UnknownKernel(OwnedKernelsError):
    """This owner has no kernel of that id."""

    code = "unknown_kernel"


class StateConflict(OwnedKernelsError):
    """The kernel's state does not allow the wish (any more)."""

    code = "state_conflict"


class Superseded(StateConflict):
    """A later wish for the same kernel came first: a shutdown overtakes a restart."""

    code = "superseded"


class BadRequest(OwnedKernelsError):
    """Input that no retry will make right."""

    code = "bad_request"


class BadQuery(BadRequest):
    """A query that no retry will make right."""

    code = "bad_query"


class TooLarge(BadRequest):
    """More than is even looked at."""

    code = "too_large"


class ScanUnavailable(OwnedKernelsError):
    """Processes cannot be seen on this system, so nothing can be found or cleaned."""

    code = "scan_unavailable"
