import asyncpg

from tests.integration.local.running import RunServers, StartHost, Until


async def test_the_servers_die_with_their_starter(start_host: StartHost, until: Until) -> None:
    host = await start_host()
    assert len(host.family) > 2
    await host.kill()
    await until(host.gone)


async def test_the_next_start_waits_for_what_is_still_dying(start_host: StartHost, run_servers: RunServers) -> None:
    host = await start_host()
    await host.kill()
    async with run_servers() as servers:
        assert host.gone()
        connection = await asyncpg.connect(servers.database_url)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_a_starter_that_is_told_to_stop_leaves_nothing(start_host: StartHost) -> None:
    host = await start_host()
    host.process.terminate()
    assert await host.process.wait() == 0
    assert host.gone()
