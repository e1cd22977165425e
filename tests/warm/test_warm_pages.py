"""What keeps pages of the template from being copied by each kernel."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest
from warm_kernels import Kernel

HOLES = """
import ctypes, json
from jupyter_ownedkernels.runtime.warm import pages

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
SIZES = (40, 200, 1000, 5000, 40000)
end = 0
for size in SIZES:
    chunks = [libc.malloc(size) for _ in range(200)]
    end = max(end, *chunks)
    for chunk in chunks[::2]:
        libc.free(chunk)
filled = pages.fill_holes()
# This program goes on, and makes a hole or two itself.
in_holes = [sum(libc.malloc(size) < end for _ in range(50)) for size in SIZES]
print(json.dumps([filled, in_holes, pages.fill_holes()]))
"""

PAGES = """
import sys
paths = [m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
pages = {id(path) >> 12 for path in paths}
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_is_allocated_later_lies_behind_what_was_freed() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    filled, in_holes, left = json.loads(done.stdout)
    assert filled >= 100 * (40 + 200 + 1000 + 5000 + 40000)
    assert max(in_holes) < 5
    assert left < filled / 10


def test_paths_of_modules_lie_side_by_side(warm: Kernel) -> None:
    warm.run(PAGES)
    assert 5 * warm.value("len(pages)") < warm.value("len(paths)")
    assert warm.value("sys.modules['zmq'].__file__ == sys.modules['zmq'].__spec__.origin")
