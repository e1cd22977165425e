"""The secrets of one server that must not stand in any answer: its token, its kernels' keys."""

from __future__ import annotations

import contextlib
from typing import Any

_MOST_KEYS = 2000


class KnownSecrets:
    """Calling it gives them all. For one event loop.

    The keys of kernels that have ended count as well: processes that they left may bear
    them on their command lines.
    """

    def __init__(self, identity_provider: Any, kernel_manager: Any) -> None:
        self._identity_provider = identity_provider
        self._manager = kernel_manager
        self._keys: dict[str, None] = {}

    def __call__(self) -> list[str]:
        for kernel_id in self._manager.list_kernel_ids():
            self.note(kernel_id)
        own = (getattr(self._identity_provider, name, "") for name in ("token", "hashed_password"))
        return [*(one for one in own if isinstance(one, str) and one), *self._keys]

    def note(self, kernel_id: str) -> None:
        """Something happens to this kernel: learn its key while it is there."""
        if kernel_id not in self._manager:
            return
        with contextlib.suppress(KeyError):
            key = getattr(getattr(self._manager.get_kernel(kernel_id), "session", None), "key", b"")
            if isinstance(key, bytes) and key:
                self._keys[key.decode("utf-8", "replace")] = None
                while len(self._keys) > _MOST_KEYS:
                    del self._keys[next(iter(self._keys))]
