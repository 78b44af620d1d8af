"""python -m tests.history: see tests.history.command."""

import os
import sys

if __name__ == "__main__":
    # Before gRPC is loaded: its handlers for a fork can abort the child that is to become a server.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
    from tests.history.command import main

    sys.exit(main())
