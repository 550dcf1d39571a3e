"""Run the server: `python -m serving.server`."""

import sys

from serving.server.command import main

if __name__ == "__main__":
    sys.exit(main())
