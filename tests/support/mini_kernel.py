"""A kernel that binds its ports, plays a scene and waits. Starts in a tenth of ipykernel's time.

It speaks no protocol, has no poller for its parent, and needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import scenes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", dest="connection_file", required=True)
    parser.add_argument("--scene", default="idle")
    parser.add_argument("--note", required=True)
    parser.add_argument("--bind-after", type=float, default=0.0, help="seconds; negative: never")
    parser.add_argument("--exclusive", action="store_true", help="bind without SO_REUSEADDR")
    options = parser.parse_args()
    if options.bind_after >= 0:
        time.sleep(options.bind_after)
        with open(options.connection_file) as stream:
            info = json.load(stream)
        listening = []
        for name in ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"):
            if info["transport"] == "ipc":
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(f"{info['ip']}-{info[name]}")
            else:
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not options.exclusive)
                listener.bind((info["ip"], info[name]))
            listener.listen()
            listening.append(listener)
    scenes.play(options.scene, options.note)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
