"""The storage service as one client."""

from askback.client.hitl import HitlCalls
from askback.client.runs import RunCalls
from askback.client.sessions import SessionCalls


class StorageClient(SessionCalls, RunCalls, HitlCalls):
    """The storage service, at `address`: sessions, runs and questions."""
