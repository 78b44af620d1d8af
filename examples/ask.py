import asyncio

from askback.client import AgentClient


async def main() -> None:
    async with AgentClient("127.0.0.1:50051") as agent:
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
