"""Free ports for a kernel, held for it until it has bound them.

jupyter_client finds a port, lets it go, and has the kernel bind it 40 to 300 ms later. Who
asks for any free port in between, in this process or another, may be given that very one,
and the kernel ends with "address already in use".

So a socket of ours is bound to it meanwhile, with SO_REUSEADDR, and never listens. Linux
gives such a port to nobody who asks for any free one, to bind or to connect. Whoever names it
and sets SO_REUSEADDR as well, as libzmq always does, binds it and listens. Without that
option it cannot be bound: only for kernels that are known to set it is a port to be held.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import weakref
from collections.abc import Iterable, Iterator, Mapping

from jupyter_client.connect import LocalPortCache

from ..runtime import PORT_NAMES

_ADDRESS = "127.0.0.1"
# Where pyzmq's ``bind_to_random_port`` begins. It names ports by chance, so that holding one
# does not help, and ipykernel calls it for a pipe of its own.
_NAMED_BY_CHANCE = 49152
# Bound at most for one kernel, until enough of them are below that. By default the first five
# are: who sets SO_REUSEADDR is given a port of the lower half of 32768 to 60999.
_TRIES = 40

_holds: weakref.WeakSet[Hold] = weakref.WeakSet()


class Hold:
    """Holds ports, as long as it exists or until they are released. Not thread-safe.

    The sockets are closed by exec, and in a forked child.
    """

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}
        _holds.add(self)

    def take(self, address: str = _ADDRESS) -> dict[str, int]:
        """Five ports, by the names of a connection file, that nobody else is given.

        In this process not even when they are released, until they are given back. Raises
        OSError when they are not to be had.
        """
        promised = LocalPortCache.instance().currently_used_ports
        found: dict[int, socket.socket] = {}
        try:
            chosen: list[int] = []
            while len(found) < _TRIES and not (chosen and chosen[-1] < _NAMED_BY_CHANCE):
                try:
                    one = _bound(address)
                except OSError:
                    if chosen:
                        break
                    raise
                found[one.getsockname()[1]] = one
                lowest = sorted(found.keys() - promised)[: len(PORT_NAMES)]
                chosen = lowest if len(lowest) == len(PORT_NAMES) else []
            if not chosen:
                raise OSError(errno.EADDRINUSE, "all free ports are promised to other kernels")
            # Noted while they are bound here: another thread is not given them either.
            promised.update(chosen)
            if _can_be_bound_by_others():
                self._sockets.update((port, found.pop(port)) for port in chosen)
        finally:
            for one in found.values():
                one.close()
        return dict(zip(PORT_NAMES, chosen, strict=True))

    def keep(self, address: str, ports: Iterable[int]) -> None:
        """Hold these as well, as far as they are free."""
        if not _can_be_bound_by_others():
            return
        for port in ports:
            if port not in self._sockets:
                with contextlib.suppress(OSError):
                    self._sockets[port] = _bound(address, port)

    def release(self) -> None:
        """Let go of all. What has been bound by others stays bound."""
        while self._sockets:
            self._sockets.popitem()[1].close()

    def release_bound(self) -> None:
        """Let go of those at which somebody listens by now."""
        for port, ours in list(self._sockets.items()):
            try:
                _bound(ours.getsockname()[0], port).close()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    self._sockets.pop(port).close()

    def __del__(self) -> None:
        # Of a launch that was prepared and never made.
        self.release()


@contextlib.contextmanager
def held() -> Iterator[dict[str, int]]:
    """Ports as :meth:`Hold.take` gives them, held while a kernel boots in the block.

    Given back if that fails.
    """
    hold = Hold()
    taken = hold.take()
    try:
        yield taken
    except BaseException:
        give_back(taken)
        raise
    finally:
        hold.release()


def give_back(taken: Mapping[str, int]) -> None:
    """Of a kernel that has ended, or is about to and was never anybody's."""
    for port in taken.values():
        LocalPortCache.instance().return_port(port)


def _bound(address: str, port: int = 0) -> socket.socket:
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except BaseException:
        made.close()
        raise
    return made


def _can_be_bound_by_others() -> bool:
    """Whether held ports mean here what they mean on Linux: some sandboxes only resemble it."""
    try:
        return _looked_up()
    except OSError:
        return False  # No descriptor is left, say: nothing is known, and that is not kept.


@functools.cache
def _looked_up() -> bool:
    with _bound(_ADDRESS) as holder, socket.socket() as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            kernel.bind(holder.getsockname())
            kernel.listen()
        except OSError:
            return False
    return True


def _release_in_child() -> None:
    # Else the ports would be held as long as the child lives.
    for hold in list(_holds):
        hold.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
