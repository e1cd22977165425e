"""Server configuration of the browser tests. It switches security off: use it nowhere else."""

import os

from jupyterlab.galata import configure_jupyter_server

configure_jupyter_server(c)  # noqa: F821

c.ServerApp.port = int(os.environ["UI_TEST_PORT"])  # noqa: F821
# Containers often run their tests as root.
c.ServerApp.allow_root = True  # noqa: F821
# Galata probes for files that do not exist yet; the warnings would hide the results.
c.ServerApp.log_level = "ERROR"  # noqa: F821
