"""``python -m jupyter_ownedkernels.cli``: the command where no script is on the path."""

from .main import main

if __name__ == "__main__":
    raise SystemExit(main())
