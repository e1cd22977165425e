"""What only running servers know of their kernels: the notebook, and whether it is busy.

It is nowhere on record: a notebook is renamed while its kernel runs. So the servers are
asked, over the REST API, with the token that they have left for their own user.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import stat
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

# Seconds. A server that is busy for longer is listed without.
_PATIENCE = 1.0
_MOST_BYTES = 10_000_000

Told = Mapping[tuple[int, str], dict[str, Any]]
"""Pid of the owner and kernel id, to the entry as the owner's REST API gives it."""


def ask(owners: Iterable[Mapping[str, Any]], runtime_dirs: Collection[str]) -> Told:
    """What these living owners say, all asked at once; never raises.

    Left out is a server without a token (behind a JupyterHub, or with a password only), and
    who is no server or does not answer within a second.
    """
    addresses = {
        owner["pid"]: address
        for owner in owners
        if owner["url"] and (address := _address(owner, runtime_dirs)) is not None
    }
    told: dict[tuple[int, str], dict[str, Any]] = {}

    def one(pid: int, url: str, token: str) -> None:
        # Whatever is wrong with it: then nothing is known.
        with contextlib.suppress(
            OSError, ValueError, KeyError, TypeError, http.client.HTTPException
        ):
            kernels = _get(url, token)["kernels"]
            told.update({(pid, kernel["kernel_id"]): kernel for kernel in kernels})

    threads = [
        threading.Thread(target=one, args=(pid, *address), daemon=True)
        for pid, address in addresses.items()
    ]
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(told)


def _address(owner: Mapping[str, Any], runtime_dirs: Collection[str]) -> tuple[str, str] | None:
    """URL and token from the file of this very server: an old one of its pid has another URL."""
    for folder in runtime_dirs:
        path = os.path.join(folder, f"jpserver-{owner['pid']}.json")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8") as stream:
                status = os.fstat(stream.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    continue
                info = json.load(stream)
            if info["pid"] == owner["pid"] and info["url"] == owner["url"] and info["token"]:
                return str(info["url"]), str(info["token"])
    return None


def _get(url: str, token: str) -> Any:
    # Neither a proxy nor a redirection may come to see the token.
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
    elif parts.scheme == "http":
        connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    else:
        raise ValueError(f"not asked by {parts.scheme}")
    with contextlib.closing(connection):
        path = f"{parts.path.rstrip('/')}/api/ownedkernels/kernels"
        connection.request("GET", path, headers={"Authorization": f"token {token}"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"answered by {answer.status}")
        return json.loads(answer.read(_MOST_BYTES))
