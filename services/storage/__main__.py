"""Runs one storage process: python -m services.storage."""

import sys

from services.runtime.process import main
from services.storage.server import storage_server
from services.storage.settings import StorageSettings

if __name__ == "__main__":
    sys.exit(main(storage_server, settings=StorageSettings, service="storage"))
