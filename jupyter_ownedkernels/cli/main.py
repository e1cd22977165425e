"""``jupyter ownedkernels``: the command line.

Exit codes: 0 nothing found or all done, 1 findings are left, 2 error, 64 wrong usage; 130 and
141 as for every program that is interrupted, or whose output nobody reads.
Works without a server, and beside any number of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import stat
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..errors import BadRequest, OwnedKernelsError
from .output import PROGRAM, complain

ERROR, USAGE, INTERRUPTED = 2, 64, 130
# What a shell says of a program that SIGPIPE has ended, as it does cat or git: neither "nothing
# found" nor "something is left", which nobody has read. The signal itself stays ignored. It
# would come from sockets too, and leave a clean half done.
BROKEN_PIPE = 141
_SHORTEST_INTERVAL = 0.1

_DESCRIPTION = """\
Kernels that end when their owner ends: list them, find what dead owners left
behind, clean it up, and read how kernels ended.
"""
_EPILOG = """\
examples:
  jupyter ownedkernels list               kernels of all running servers
  jupyter ownedkernels doctor             look for strays; changes nothing
  jupyter ownedkernels doctor --fix       end strays, remove stale files
  jupyter ownedkernels clean p4711-8640   end one finding of the doctor
  jupyter ownedkernels detach -- make     outlives the kernel it is started from
  jupyter ownedkernels check              try for real what happens on this machine

exit status:
  0   nothing found, or all done
  1   something that could be cleaned is left
  2   error
  64  wrong usage
"""
_DOCTOR_EPILOG = """\
what is found:
  stray kernel    its owner is proven dead; ended by --fix
  stray process   left by such a kernel; ended by --fix
  stale file      connection or server file, or socket, that nothing can use;
                  removed by --fix
  detached        left its kernel on purpose (setsid, a daemon); ended by --fix --detached
  foreign         of another machine, boot or container; never touched
  unknown         not proven to be anything; never touched

Detached, foreign and unknown findings alone leave the exit status at 0. Where
not everything could be looked at, which is said ("complete": false in JSON),
0 means only that nothing was found in the rest.
"""


class Parser(argparse.ArgumentParser):
    """Wrong usage ends with 64, as sysexits.h has it."""

    def error(self, message: str) -> NoReturn:
        # argparse itself does not mind a standard error that nobody reads since Python 3.12 only.
        with contextlib.suppress(OSError):
            self.print_usage(sys.stderr)
        complain(f"{message} (see {self.prog} --help)")
        sys.exit(USAGE)


def _seconds(text: str, least: float = 0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"not a number of seconds from {least} to 1e9: {text!r}")
    return value


def _interval(text: str) -> float:
    return _seconds(text, _SHORTEST_INTERVAL)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"not a whole number from 0 to 999999999: {text!r}")
    return int(text)


def _id(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an id is empty")
    return text


def make_parser(argv: Sequence[str] = ()) -> Parser:
    """The whole parser. The options of ``check`` are there when it is asked for."""
    parser = Parser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", dest="name", metavar="COMMAND")
    _add_list(commands)
    _add_doctor(commands)
    _add_clean(commands)
    _add_history(commands)
    _add_detach(commands)
    check = commands.add_parser(
        "check",
        help="try for real: start a server and kernels, kill the server, see what is left",
        description="Start a Jupyter server and kernels in a folder of their own, kill the "
        "server, and measure when everything is gone. Takes some seconds and touches nothing "
        "else. Exit status 0: all was gone, 1: something stayed, 2: it could not be told.",
    )
    if "check" in argv or "completion" in argv:
        from .check import add_arguments

        add_arguments(check)
    completion = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a completion script. How to use it stands in its first lines.",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def _add_folders(parser: argparse.ArgumentParser) -> None:
    folders = parser.add_argument_group("folders")
    folders.add_argument(
        "--runtime-dir", metavar="DIR", help="Jupyter runtime folder (default: Jupyter's own)"
    )
    folders.add_argument(
        "--journal-dir",
        metavar="DIR",
        help="folder of the journals, if c.OwnedKernels.journal_dir is set",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_cleaning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL (default: 1)",
    )
    parser.add_argument(
        "--stale-file-age",
        type=_seconds,
        default=3600.0,
        metavar="SECONDS",
        help="age before a file that no journal knows is called stale (default: 3600)",
    )


def _add_list(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "list",
        help="list the kernels of all running owners of this user on this machine",
        description="List the kernels of all running owners of this user on this machine: "
        "Jupyter servers, notebook runners, consoles. The notebooks are what the servers say.",
    )
    _add_json(parser)
    _add_folders(parser)


def _add_doctor(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="find stray kernels, left processes and stale files; with --fix clean them",
        description="Look for what dead owners left behind. Changes nothing without --fix.",
        epilog=_DOCTOR_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fix", action="store_true", help="end strays and remove stale files")
    parser.add_argument("--detached", action="store_true", help="end detached processes as well")
    parser.add_argument(
        "--all-users", action="store_true", help="look after every user's kernels (root only)"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_interval,
        const=5.0,
        metavar="SECONDS",
        help="again and again until interrupted (default: every 5 seconds)",
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("--all", action="store_true", help="show every stale file")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the proofs of each")
    _add_json(parser)
    _add_cleaning(parser)
    _add_folders(parser)


def _add_clean(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "clean",
        help="end or remove single findings of the doctor",
        description="Look at each finding again, then end or remove it. "
        "An id may be shortened as long as it stays unique; its numbers count whole. "
        "p4711 means whatever has that number now, p4711-864000 (with its start time, as the "
        "doctor shows it) that very process.",
    )
    parser.add_argument("ids", nargs="+", type=_id, metavar="ID", help="as the doctor shows it")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    _add_json(parser)
    _add_cleaning(parser)
    _add_folders(parser)


def _add_history(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "history",
        help="how kernels ended, newest first",
        description="How kernels of this user ended and why, newest first, and what was done "
        "about what they had left.",
    )
    parser.add_argument(
        "--limit", type=_number, default=100, metavar="N", help="most entries (default: 100)"
    )
    _add_json(parser)
    _add_folders(parser)


def _add_detach(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "detach",
        help="start a command that is meant to outlive the kernel",
        usage=f"{PROGRAM} detach [-h] [--] COMMAND [ARGUMENT ...]",
        description="Start a command in a session of its own, on record as left on purpose, "
        "and print its pid. As with nohup a terminal is taken away from it (output goes to "
        "nohup.out); a pipe or file is passed on, so redirect the output inside $(...).",
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    _add_folders(parser)


def _check_folders(args: argparse.Namespace) -> None:
    """A folder that somebody names is there: else nothing would be found in it, and that said.

    The default ones may not be there yet. Raises BadRequest.
    """
    for option, given in (("--runtime-dir", args.runtime_dir), ("--journal-dir", args.journal_dir)):
        if given is None:
            continue
        try:
            problem = "" if stat.S_ISDIR(os.stat(given).st_mode) else "not a folder"
        except FileNotFoundError:
            problem = "no such folder"
        except OSError as error:
            problem = error.strerror or str(error)
        if problem:
            raise BadRequest(f"{option} {given or repr(given)}: {problem}")


def _run(args: argparse.Namespace, parser: Parser) -> int:
    if "runtime_dir" in args:
        named = args.runtime_dir is not None or args.journal_dir is not None
        if args.name == "doctor" and args.all_users and named:
            args.parser.error("--all-users looks into each user's own folders")
        _check_folders(args)
    # Imported here: --help and completion should not wait for rich.
    if args.name in ("doctor", "clean"):
        from . import doctor

        return doctor.run_clean(args) if args.name == "clean" else doctor.run_doctor(args)
    if args.name in ("list", "history", "detach"):
        from . import kernels

        if args.name == "detach":
            args.command = args.command[1:] if args.command[:1] == ["--"] else args.command
            if not args.command:
                args.parser.error("a command is needed")
            return kernels.run_detach(args)
        return kernels.run_list(args) if args.name == "list" else kernels.run_history(args)
    if args.name == "check":
        from . import check

        return check.run(args)
    if args.name == "completion":
        from .completion import script

        print(script(args.shell, parser), end="")
        return 0
    with contextlib.suppress(OSError):
        parser.print_help(sys.stderr)
    return USAGE


def _prepare_streams() -> None:
    """Started with ``>&-`` or ``2>&-`` there is no stream, and its number is anybody's.

    What the locale's encoding has no sign for is escaped: names may hold any.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8", closefd=False))
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; the answer is the exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    _prepare_streams()
    try:
        try:
            return _main(given)
        finally:
            # Here, what cannot be written can still be dealt with.
            sys.stdout.flush()
    except BrokenPipeError:
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BadRequest as error:
        complain(str(error))
        return USAGE
    except (OwnedKernelsError, OSError) as error:
        if os.environ.get("JUPYTER_OWNEDKERNELS_DEBUG"):
            raise
        complain(_in_words(error))
        return ERROR
    finally:
        _give_up_what_is_broken()


def _main(given: Sequence[str]) -> int:
    parser = make_parser(given)
    return _run(parser.parse_args(given), parser)


def _give_up_what_is_broken() -> None:
    """What could not be written is lost. Python would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _in_words(error: Exception) -> str:
    """Of an OSError the file and what is wrong with it: its number is for programs."""
    if isinstance(error, OSError) and error.strerror:
        about = f"{error.filename}: " if error.filename else ""
        return about + error.strerror
    return str(error)
