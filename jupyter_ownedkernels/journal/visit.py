"""One record in the journal of a living owner, by another process of the same user.

The owner holds the file and its lock; a keeper's last word, a process that is to outlive
its kernel and one that a person had ended are appended by path, each whole, as the format
allows. The owner takes them in when it writes the file anew.
"""

from __future__ import annotations

import logging
from typing import Any

from ..runtime import records
from .writer import JournalWriter

log = logging.getLogger(__name__)


class Visit(JournalWriter):
    """Writes to a journal that exists; holds nothing open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.error = ""
        """Why the last record is not in the file."""

    def _put(self, record: dict[str, Any], durable: bool = False) -> bool:
        try:
            records.append(self.path, record)
        except (OSError, ValueError, TypeError) as error:
            self.error = str(error)
            log.debug("Not on record in %s: %s", self.path, error)
            return False
        return True
