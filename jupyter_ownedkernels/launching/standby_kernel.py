"""One booted kernel that waits for its place: what it fits, and how it is claimed."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import LaunchError
from ..runtime import procfs, wire
from . import ports
from .choice import of_template

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from .choice import Choice
    from .launch import Launch, LaunchRequest

_PLACEHOLDER = "{connection_file}"
# Of one launch or one shell; all else must be equal, since the boot may have read it.
_TOLERATED = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "JPY_SESSION_NAME", "JPY_PARENT_PID"})
_CLAIM_TIMEOUT = 3.0
# Seconds. From the reservation in ``pre_launch`` to the claim lies the writing of one file.
_RESERVATION = 30.0


@dataclass(frozen=True)
class Needs:
    """What of a launch a standby kernel must have booted with."""

    choice: Choice
    shape: tuple[str, ...]
    """The command, with a placeholder for the connection file."""
    environment: dict[str, str] = field(repr=False)
    """Never to be logged."""
    inherited: dict[str, Any] | None
    """What a fork passes on; None where the system does not tell."""

    @classmethod
    def of(
        cls,
        choice: Choice,
        argv: Sequence[str],
        environment: Mapping[str, str],
        connection_file: str,
        inherited: dict[str, Any] | None,
    ) -> Needs:
        """Those of a launch with this command."""
        return cls(choice, shape(argv, connection_file), _significant(environment), inherited)


class StandbyKernel:
    """One booted kernel, with the channel on which it can be claimed."""

    def __init__(
        self, choice: Choice, launch: Launch, channel: socket.socket, taken: dict[str, int]
    ) -> None:
        self.launch, self.channel, self.ports = launch, channel, taken
        self.reserved_at: float | None = None
        """By the monotonic clock."""
        request = launch.request
        environment = _significant(request.env)
        self._booted_with = Needs(choice, tuple(request.argv), environment, request.inherited)

    # -- what it is ----------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """The kind of launch that it was booted for."""
        return self._booted_with.choice

    @property
    def alive(self) -> bool:
        """Whether its process has not ended, as far as is known."""
        return not self.launch.exited.done()

    @property
    def is_stopped(self) -> bool:
        """By a signal or a debugger: a claim would wait for nothing."""
        try:
            seen = procfs.stat(self.launch.started.result(0).pid)
        except OSError:
            return False
        return seen is not None and seen.state in "Tt"

    @property
    def is_idle(self) -> bool:
        """Whether it could be reserved."""
        return self.reserved_at is None and self.alive and not self.is_stopped

    @property
    def is_awaited(self) -> bool:
        """Whether it was reserved, and the claim may still come."""
        reserved_at = self.reserved_at
        return reserved_at is not None and reserved_at > time.monotonic() - _RESERVATION

    def has_inherited(self, passed_on: dict[str, Any] | None) -> bool:
        """Whether a fork that passes this on would give it what it has already."""
        return self._booted_with.inherited in (None, passed_on)

    def fits(self, needs: Needs) -> bool:
        """Whether a launch that needs this could claim it."""
        given = replace(self._booted_with, inherited=needs.inherited)
        return given == needs and self.has_inherited(needs.inherited)

    # -- what becomes of it --------------------------------------------------------

    def expect(self) -> None:
        """A claim may be about to come: it looks at its files meanwhile."""
        self._tell({"op": "expect"})

    def announce_claim(self) -> None:
        """It is reserved. When no claim comes it ends itself after a while."""
        self._tell({"op": "reserved", "seconds": _RESERVATION})

    def _tell(self, message: wire.Message) -> None:
        # If it cannot be told, the claim will say why.
        with contextlib.suppress(OSError, wire.Closed):
            wire.send(self.channel, message)

    def claim(self, request: LaunchRequest, stdio: Sequence[int]) -> None:
        """Make it the kernel of this request.

        LaunchError, OSError, :class:`.wire.Closed` or ValueError when it cannot become that;
        it is of no use then.
        """
        if _significant(request.env) != self._booted_with.environment:
            raise LaunchError("the environment is another than at the reservation")
        if not self.has_inherited(request.inherited):
            raise LaunchError("what a fork passes on is another than at the reservation")
        if self.is_stopped:
            raise LaunchError("it is stopped")
        claim = {
            "op": "claim",
            "argv": list(request.argv),
            "env": request.env,
            "cwd": request.cwd,
            "umask": request.umask,
            "connection_file": request.connection_file,
        }
        self.channel.settimeout(_CLAIM_TIMEOUT)
        # It may have found a reason not to since it was reserved, and has said so.
        with contextlib.suppress(wire.Closed):
            wire.send(self.channel, claim, list(stdio))
        told, fds = wire.receive(self.channel)
        wire.close(fds)
        if told.get("op") != "claimed":
            raise LaunchError(str(told.get("reason")))
        # Not before: the keeper of one that failed must know nothing of that file.
        self.launch.claim(request)
        self.channel.close()
        self.launch.request = request

    def end(self) -> None:
        """End it, whatever state it is in."""
        self.channel.close()
        self.launch.close()
        if self.reserved_at is None:
            # Else they are in the connection file of whoever reserved it, and given back there.
            ports.give_back(self.ports)


def shape(argv: Sequence[str], connection_file: str) -> tuple[str, ...]:
    """A command with a placeholder for its connection file."""
    return tuple(_unnamed(part, connection_file) for part in argv)


def _unnamed(part: str, connection_file: str) -> str:
    # One that has no name yet is the working folder. An interpreter in there stays what it is.
    first, *others = part.split(connection_file)
    names = (connection_file if other[:1] == "/" else _PLACEHOLDER for other in others)
    return first + "".join(name + other for name, other in zip(names, others, strict=True))


def _significant(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in of_template(environment).items() if name not in _TOLERATED
    }
