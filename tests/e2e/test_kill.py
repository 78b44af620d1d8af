"""The system as processes: killed in the middle, it goes on."""

from pathlib import Path

from askback.client import AgentClient, KnowledgeClient, StorageClient
from askback.rag.v1 import hitl_pb2
from services.local.system import running_system
from tests.e2e.harness import EXAMPLES, chat, step_kinds, text_of


async def test_an_agent_killed_between_asking_back_and_the_answer_loses_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    async with running_system(home=tmp_path / "home", report=lines.append, durable=False) as system:
        async with (
            AgentClient(system.agent_address) as agent,
            KnowledgeClient(system.agent_address) as knowledge,
        ):
            for line in ("alder", "birch", "cedar"):
                await knowledge.ingest_document(content=EXAMPLES / "knowledge" / f"{line}-manual.md")
            asked = await chat(agent, user_id="ada", session_id="s", message="How do I reset the admin PIN?")
            task = asked[-2].hitl_request
            assert task.options

            await system.kill_agent()
            await system.start_agent()

        async with AgentClient(system.agent_address) as agent, StorageClient(system.storage_address) as storage:
            resumed = await chat(agent, user_id="ada", session_id="s", message="Cedar", answers_task_id=task.task_id)
            assert "pin.dat" in text_of(resumed)
            assert "RESUME" in step_kinds(resumed)
            messages = (await storage.list_messages(user_id="ada", session_id="s")).messages
            assert [message.position for message in messages] == [1, 2, 3, 4]
            answered = await storage.get_hitl_task(user_id="ada", task_id=task.task_id)
            assert answered.state == hitl_pb2.HITL_STATE_ANSWERED
