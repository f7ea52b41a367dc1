"""``python -m pdcluster_worker``: one worker, from its environment (see `core.settings`)."""

import sys

from pdcluster_worker.launch import main

if __name__ == "__main__":
    sys.exit(main())
