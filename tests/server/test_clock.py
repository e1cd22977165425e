"""The wall clock is set while a server runs: by a day, by years, ahead and back.

The time of the whole machine is not ours to change. Server, spawners and kernels get a
library before all others instead, which adds to the system's time what is written in a file.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., Any]

LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

/* Mapped, not open: a warm spawner must hold no file when it forks. */
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) ahead = page;
    if (fd >= 0) close(fd);
}

int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(which, at);
    if (ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) at->tv_sec += *ahead;
    return answer;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""
DAY = 86400
JUMPS = (DAY, -3000 * DAY)


@pytest.fixture
def clock(tmp_path: Path) -> dict[str, str]:
    """What to put into the environment of processes whose clock follows a file."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler is needed to change the time of a few processes only")
    source, library, page = (tmp_path / name for name in ("clock.c", "clock.so", "clock"))
    source.write_text(LIBRARY)
    page.write_bytes(bytes(8))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "TEST_CLOCK": str(page)}


@pytest.mark.slow
def test_kernels_start_and_end_as_ever_when_the_clock_jumps(
    play: Play, clock: dict[str, str]
) -> None:
    found = play("clock_jumps", clock["TEST_CLOCK"], *JUMPS, **clock)["jumps"]
    # That it was set at all: the first kernel's start is as long ago as that.
    assert [round(-one["at"] / DAY) for one in found] == [jump / DAY for jump in JUMPS]
    for one in found:
        assert one["modes"] == ["fork", "fork"]
        assert one["claimed"], "the kernel on standby is as good as before"
        assert one["cause"] == "killed"
        assert one["alive"]
        assert one["findings"] == []
        assert one["spawners"] == [["ready", 0]]
