import os

# Before gRPC is loaded: its handlers for a fork can abort the child that is to become a server.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
