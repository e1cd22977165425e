"""Entry point of a spawner: ``python -I -S start.py CONTROL_FD OWNER_PIDFD``."""

import os
import sys

if __name__ == "__main__":
    # Last, so that nothing beside this package can hide a module of the library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from runtime import spawner  # type: ignore[import-not-found]

    sys.exit(spawner.main(int(sys.argv[1]), int(sys.argv[2])))
