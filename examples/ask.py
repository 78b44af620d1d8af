import asyncio
import os

from askback.client import AgentClient

ADDRESS = os.environ.get("ASKBACK_AGENT_ADDRESS", "127.0.0.1:50051")


async def main() -> None:
    async with AgentClient(ADDRESS) as agent:
        async with agent.stream_chat(
            user_id="ada", session_id="py", message="How long does the battery of an Alder sensor last?"
        ) as events:
            async for event in events:
                if event.HasField("content"):
                    print(event.content.text, end="", flush=True)
                elif event.HasField("hitl_request"):
                    print(event.hitl_request.prompt, list(event.hitl_request.options))
    print()


asyncio.run(main())
