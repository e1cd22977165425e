"""Run inside a kernel: everything that a program could see of how it was started.

``look()`` gives plain data. What differs between any two processes (numbers of processes,
times, addresses) is replaced by what it stands for.
"""


def look():  # type: ignore[no-untyped-def]
    import asyncio
    import faulthandler
    import gc
    import locale
    import logging
    import os
    import resource
    import signal
    import stat
    import sys
    import threading
    import warnings

    seen = {}
    pid, ppid = str(os.getpid()), str(os.getppid())
    connection_file = sys.argv[-1]
    launch = os.environ.get("JUPYTER_OWNEDKERNELS_LAUNCH", "?")

    def plain(value):  # type: ignore[no-untyped-def]
        text = value if isinstance(value, str) else repr(value)
        for what, name in ((connection_file, "<FILE>"), (launch, "<LAUNCH>")):
            text = text.replace(what, name)
        return text

    def number(text):  # type: ignore[no-untyped-def]
        return {pid: "<SELF>", ppid: "<PARENT>"}.get(text, text)

    main = sys.modules["__main__"]
    seen["argv"] = [plain(part) for part in sys.argv]
    seen["orig_argv"] = [plain(part) for part in getattr(sys, "orig_argv", [])]
    seen["path"] = sys.path
    seen["flags"] = repr(sys.flags)
    seen["xoptions"] = repr(sys._xoptions)
    seen["warnoptions"] = sys.warnoptions
    seen["executable"] = [sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix]
    seen["byte_code"] = [sys.dont_write_bytecode, sys.pycache_prefix]
    seen["main"] = {
        name: plain(getattr(main, name, None))
        for name in ("__name__", "__package__", "__doc__", "__loader__", "__spec__")
    }
    seen["main_type"] = type(main).__name__
    seen["cwd"] = os.getcwd()
    seen["environ"] = {name: number(plain(value)) for name, value in os.environ.items()}
    with open("/proc/self/environ", "rb") as stream:
        shown = stream.read().decode().split("\0")
    pairs = dict(pair.partition("=")[::2] for pair in shown if pair)
    own = ("JUPYTER_OWNEDKERNELS_OWNER",)
    # What the imports of ipykernel set is there from the start, or later.
    seen["proc_environ"] = {
        name: number(plain(value))
        for name, value in pairs.items()
        if name not in own and not name.startswith("PYDEVD_")
    }
    with open("/proc/self/cmdline", "rb") as stream:
        seen["cmdline"] = plain(stream.read().decode())
    with open("/proc/self/comm") as stream:
        seen["comm"] = stream.read()
    seen["exe"] = os.readlink("/proc/self/exe")
    seen["root"] = os.readlink("/proc/self/root")
    mask = os.umask(0)
    os.umask(mask)
    seen["umask"] = mask
    seen["nice"] = [os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))]
    with open("/proc/self/oom_score_adj") as stream:
        seen["oom_score_adj"] = stream.read()
    seen["limits"] = {
        name: resource.getrlimit(getattr(resource, name))
        for name in dir(resource)
        if name.startswith("RLIMIT_")
    }
    seen["user"] = [os.getresuid(), os.getresgid(), os.getgroups()]
    seen["session"] = [
        number(str(os.getsid(0))),
        number(str(os.getpgid(0))),
    ]
    with open("/proc/self/stat") as stream:
        columns = stream.read().rpartition(")")[2].split()
    seen["terminal"] = columns[4]
    seen["signals"] = {
        signum.name: plain(
            getattr(signal.getsignal(signum), "__qualname__", signal.getsignal(signum))
        )
        for signum in signal.Signals
        if signum.name not in ("SIGKILL", "SIGSTOP")
    }
    seen["mask"] = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    with open("/proc/self/status") as stream:
        status = dict(line.split(":", 1) for line in stream if ":" in line)
    wanted = (
        "SigQ SigPnd ShdPnd SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd NoNewPrivs "
        "Seccomp Threads"
    )
    seen["status"] = {
        name: status.get(name, "").strip() for name in wanted.split() if name != "SigQ"
    }
    kinds, own = [], ("socket", "anon_inode")  # ZeroMQ's, as many as clients are connected
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = stat.S_IFMT(os.stat("/proc/self/fd/" + name).st_mode)
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if target.endswith(("-journal", "-wal", "-shm", "profile_default")):
            continue  # of the history's database, while it writes
        inherits = os.get_inheritable(int(name)) if int(name) > 2 else None
        entry = repr([kind, target.partition(":")[0] if ":" in target else target, inherits])
        if entry not in kinds or not any(what in entry for what in own):
            kinds.append(entry)
    seen["descriptors"] = sorted(kinds)
    seen["threads"] = sorted(
        thread.name.rpartition("-")[0] or thread.name for thread in threading.enumerate()
    )
    seen["main_thread"] = [
        threading.main_thread().name,
        threading.current_thread() is threading.main_thread(),
        threading.get_native_id() == os.getpid(),
        threading.main_thread().native_id == os.getpid(),
        threading.stack_size(),
    ]
    seen["locale"] = [
        locale.getlocale(),
        locale.setlocale(locale.LC_ALL),
        locale.getpreferredencoding(False),
        sys.getfilesystemencoding(),
        sys.getfilesystemencodeerrors(),
        sys.getdefaultencoding(),
    ]
    seen["streams"] = [
        [
            stream.encoding,
            stream.errors,
            stream.line_buffering,
            stream.isatty(),
            stream.name,
            stream.fileno(),
            getattr(stream, "write_through", None),
            stream.mode,
        ]
        for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    ]
    seen["faulthandler"] = faulthandler.is_enabled()
    seen["asyncio"] = (
        type(asyncio.get_event_loop_policy()).__name__ if sys.version_info < (3, 14) else ""
    )
    seen["loop"] = type(asyncio.get_event_loop()).__name__
    seen["filters"] = [plain(entry) for entry in warnings.filters]
    seen["logging"] = [
        logging.root.level,
        [type(handler).__name__ for handler in logging.root.handlers],
        sorted(
            (name, logger.level, len(logger.handlers), logger.propagate)
            for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger)
        ),
    ]
    seen["gc"] = [gc.isenabled(), gc.get_threshold(), gc.get_debug()]
    seen["interpreter"] = [
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        sys.gettrace(),
        sys.getprofile(),
        [type(finder).__name__ for finder in sys.meta_path],
        [getattr(hook, "__name__", "") for hook in sys.path_hooks],
        plain(getattr(sys.excepthook, "__qualname__", "")),
        plain(getattr(sys.unraisablehook, "__qualname__", "")),
        plain(getattr(sys.breakpointhook, "__qualname__", "")),
        plain(getattr(threading.excepthook, "__qualname__", "")),
    ]
    depth, frame = [], sys._getframe()
    while frame is not None:
        depth.append(frame.f_code.co_name)
        # Below it a forked kernel has one frame more than an executed one.
        frame = frame.f_back if frame.f_code.co_name != "_run_module_as_main" else None
    seen["stack"] = depth
    seen["modules"] = sorted(sys.modules)

    shell = get_ipython()  # type: ignore[name-defined]  # noqa: F821
    application = shell.kernel.parent
    seen["config"] = plain(shell.config)
    seen["profile"] = [shell.profile, shell.profile_dir.location, shell.ipython_dir]
    seen["extensions"] = sorted(shell.extension_manager.loaded)
    seen["magics"] = {kind: sorted(found) for kind, found in shell.magics_manager.magics.items()}
    seen["aliases"] = sorted(shell.alias_manager.aliases)
    seen["namespace"] = sorted(name for name in shell.user_ns if name != "look")
    seen["starting_dir"] = [shell.starting_dir, str(shell.user_ns["_dh"])]
    seen["history"] = [shell.history_manager.enabled, shell.history_manager.hist_file]
    seen["application"] = {
        name: plain(getattr(application, name))
        for name in (
            "connection_file",
            "abs_connection_file",
            "ip",
            "transport",
            "quiet",
            "log_level",
        )
    }
    seen["parent_handle"] = number(str(application.parent_handle))
    seen["poller"] = type(application.poller).__name__
    seen["kernel"] = [
        type(shell.kernel).__name__,
        plain(shell.kernel.user_module),
        shell.kernel.implementation,
    ]
    seen["kernel_modules"] = sorted(set(getattr(shell.kernel, "_kernel_modules", ())))
    return seen
