from pathlib import Path

import psutil

from askback.client import KnowledgeClient
from services.local.health import serves
from services.local.system import running_system
from tests.integration.local.running import Told, Until, lives


async def test_the_whole_system_serves_survives_a_killed_agent_and_leaves_nothing(
    home: Path, tmp_path: Path, told: Told, until: Until
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "one.txt").write_text("The red valve opens at 3 bar.")
    (documents / "two.md").write_text("# Valves\n\nThe blue valve opens at 5 bar.\n")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    async with running_system(home=home, report=told, durable=False) as system:
        family = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
        assert await serves(system.storage_address)
        assert await serves(system.agent_address)
        assert await system.ingest(documents) == 2

        agent = system.agent.pid
        assert agent is not None
        psutil.Process(agent).kill()
        await until(lambda: told.has("agent is back"))
        assert await serves(system.agent_address)
        async with KnowledgeClient(system.agent_address) as knowledge:
            listed = await knowledge.list_documents(page_size=100)
        assert {document.filename for document in listed.documents} == {"one.txt", "two.md"}
        family += [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert not any(lives(process) for process in family)
