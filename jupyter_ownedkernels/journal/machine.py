"""Whether a journal was written before this machine was last started: then all in it is gone.

Another boot id alone proves nothing: another machine, or a container that is given a boot
id of its own, has one too. All of these together do:

- the host's name and the machine's id (an installed system's own) are the same;
- both worlds are the machine's own pid namespace, no container's;
- the journal lies on a disk that only this machine writes to. So one of two machines that
  were copied from the same image (same name, same id) never sees the other's journals.

What is not proven so stays foreign. Of such journals a bounded number is kept, see
:func:`.retention.outdated`.
"""

from __future__ import annotations

import functools
import hashlib

from .. import identity
from ..models import OwnerRecord
from .place import INITIAL_NAMESPACE, why_shared

_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@functools.lru_cache(maxsize=1)
def this_machine() -> str:
    """Tells this installed system from others; empty where the system does not say.

    Derived from its id, which is not to be given to everybody.
    """
    for path in _ID_FILES:
        try:
            with open(path, "rb") as stream:
                known = stream.read().strip()
        except OSError:
            continue
        if len(known) == 32:
            return hashlib.sha256(b"jupyter_ownedkernels " + known).hexdigest()[:16]
    return ""


def is_of_an_earlier_boot(owner: OwnerRecord | None, folder: str) -> bool:
    """Whether this machine itself, before its last start, wrote the journal in that folder."""
    if owner is None or owner.identity is None or not owner.machine:
        return False
    then, now = owner.identity.world, identity.this_world()
    return (
        bool(then.boot_id and now.boot_id)
        and then.boot_id != now.boot_id
        and then.host == now.host
        and then.pid_ns == now.pid_ns == INITIAL_NAMESPACE
        and owner.machine == this_machine()
        and not why_shared(folder)
    )
