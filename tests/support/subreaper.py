"""Runs a command as a subreaper that lives on, like ``systemd --user`` or ``tini -s``."""

import ctypes
import os
import sys
import time

PR_SET_CHILD_SUBREAPER = 36

if __name__ == "__main__":
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    if os.fork() == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    time.sleep(3600)
