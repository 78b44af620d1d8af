import asyncio
import os

from askback.client import StorageClient
from askback.storage.v1.session_pb2 import MESSAGE_TYPE_AI, MESSAGE_TYPE_HUMAN, Message

ADDRESS = os.environ.get("ASKBACK_STORAGE_ADDRESS", "127.0.0.1:50052")


async def main() -> None:
    async with StorageClient(ADDRESS) as storage:
        appended = await storage.append_messages(
            user_id="ada",
            session_id="notes",
            messages=[
                Message(type=MESSAGE_TYPE_HUMAN, content="Remember: the delivery is on Friday."),
                Message(type=MESSAGE_TYPE_AI, content="Noted."),
            ],
        )
        print("revision", appended.session.revision)
        loaded = await storage.load_session(user_id="ada", session_id="notes", max_messages=100)
        for message in loaded.messages:
            print(message.position, message.content)


asyncio.run(main())
