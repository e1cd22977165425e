"""The part that runs inside spawners and keepers.

Standard library only, Python 3.9 or newer: these files are executed by path in
interpreters that have none of this package's dependencies. The server side may
import them; they import nothing but the standard library and each other.
"""

# As a connection file has them.
PORT_NAMES = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
