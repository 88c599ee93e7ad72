"""`fmsg-mcpd` and ``python -m fmsg_mcpd``: makes the packages importable for this process, then runs the command."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line. Installed from a wheel, the packages are in this folder; in a checkout, beside it."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.isdir(os.path.join(here, "ops"))
    sys.path.insert(0, here if installed else os.path.dirname(here))
    from ops.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
