from collections.abc import AsyncIterator

import pytest

from tests.integration.client.scripted import Services, start_services


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """Scripted services on a port of their own."""
    server, services = await start_services()
    yield services
    await server.stop(grace=None)
