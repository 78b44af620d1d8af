"""What a client does to sessions: writes, overwrites, changes, deletes."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from askback.client import StorageClient
from askback.storage.v1 import session_pb2
from askback.storage.v1 import session_service_pb2 as wire
from tests.history.caller import TIMEOUT_S, Place
from tests.history.model import Append, CancelQuestion, Effect, Save, Truncate, Update, owner
from tests.history.reads import PLACES, Reader
from tests.history.record import Failure, History, Write
from tests.history.turns import Turns

_WEIGHTS = (5, 4, 3, 2, 3, 2, 1, 2, 1, 1)
_TYPES = {"H": "HUMAN", "A": "AI", "S": "SYSTEM"}
_KEYS = ("k1", "k2", "k3", "k4")
LONGEST_REST_S = 0.02


class Client(Reader):
    """One client, and everything that it may do next."""

    def __init__(self, name: str, *, rng: random.Random, replicas: Sequence[StorageClient], history: History):
        super().__init__(name, rng=rng, replicas=replicas, history=history)
        self._turns = Turns(self)
        self._does: Mapping[Callable[[Place], Awaitable[object]], float] = {
            self.append: 24,
            self.save: 5,
            self.update: 9,
            self.note: 3,
            self.load: 14,
            self.list_messages: 9,
            self.get: 6,
            self.get_message: 3,
            self.list_sessions: 6,
            self.delete_messages: 3,
            self.delete_session: 0.5,
            self._turns.turn: 14,
            self._turns.finish_forgotten: 2,
            self._turns.cancel_run: 1,
            self.cancel_question: 4,
            self.list_questions: 2,
            self.list_runs: 2,
            self._late_one: 3,
        }

    async def work(self, *, done: asyncio.Event, abandon_until: float) -> None:
        """Goes on until it is done; runs are abandoned early enough to be over in the end."""
        actions, weights = list(self._does), list(self._does.values())
        self._turns.abandon_until = abandon_until
        while not done.is_set():
            place = self.rng.choices(PLACES, _WEIGHTS)[0]
            await self.rng.choices(actions, weights)[0](place)
            await asyncio.sleep(self.rng.uniform(0, LONGEST_REST_S))

    async def _late_one(self, _: Place) -> None:
        await self.repeat_late()

    async def append(self, place: Place) -> wire.AppendMessagesResponse | None:
        key = self.new_key()
        contents = self._contents(place, key)
        expected = self.expected(place, 0.3)
        messages = [
            {"type": type_of(content), "content": content, **({"message_id": content} if number % 2 else {})}
            for number, content in enumerate(contents)
        ]
        write = self.change(place, key, "AppendMessages", Append(contents), expected)

        def take(reply: wire.AppendMessagesResponse, began: float, ended: float) -> bool:
            stored = reply.messages
            if tuple(message.content for message in stored) != contents:
                self.history.failures.append(Failure(key, "OTHER_MESSAGES"))
            self.answered(write, reply.session, began, ended, *((m.message_id, m.position) for m in stored))
            write.position = stored[0].position if stored else 0
            return True

        return await self.write(
            write,
            lambda storage: storage.append_messages(
                user_id=place.user,
                session_id=place.session,
                messages=messages,
                expected_revision=expected,
                request_id=key,
                timeout=TIMEOUT_S,
            ),
            take,
        )

    async def save(self, place: Place) -> None:
        whole = self.seen_whole.get(place)
        kept = list(whole.entries or ()) if whole else []
        if kept:
            first = self.rng.randrange(max(1, len(kept) // 4))
            kept = [entry for entry in kept[first:] if self.rng.random() < 0.9]
        key = self.new_key()
        fresh = self._contents(place, key)
        contents = (*(entry.content for entry in kept), *fresh)
        changed = self._metadata(place, key)
        expected = whole.revision if whole and self.rng.random() < 0.8 else None
        messages: list[dict[str, Any]] = [
            {"type": type_of(entry.content), "content": entry.content, "message_id": entry.message_id} for entry in kept
        ]
        messages += [{"type": type_of(content), "content": content} for content in fresh]
        write = self.change(place, key, "SaveSession", Save(contents, changed), expected)
        await self.write(
            write,
            lambda storage: storage.save_session(
                user_id=place.user,
                session_id=place.session,
                messages=messages,
                session_metadata=changed,
                expected_revision=expected,
                request_id=key,
                timeout=TIMEOUT_S,
            ),
            lambda reply, began, ended: self.answered(write, reply, began, ended),
        )

    async def update(self, place: Place) -> None:
        key = self.new_key()
        changed = self._metadata(place, key)
        title = f"{owner(place.user, place.session)}{key}" if self.rng.random() < 0.3 else ""
        expected = self.expected(place, 0.2)
        write = self.change(place, key, "UpdateSession", Update(changed, title), expected)
        await self.write(
            write,
            lambda storage: storage.update_session(
                user_id=place.user,
                session_id=place.session,
                title=title or None,
                session_metadata=changed,
                expected_revision=expected,
                request_id=key,
                timeout=TIMEOUT_S,
            ),
            lambda reply, began, ended: self.answered(write, reply, began, ended),
        )

    async def note(self, place: Place) -> None:
        seen = self.seen.get(place)
        if seen is None or not seen.count:
            return
        key, through = self.new_key(), self.rng.randint(max(1, seen.count - 10), seen.count)
        note = f"{owner(place.user, place.session)}{key}"
        self.history.notes.setdefault((place.user, place.session), {})[note] = through
        write = self.change(place, key, "UpdateSession", None)
        await self.write(
            write,
            lambda storage: storage.update_session(
                user_id=place.user,
                session_id=place.session,
                note=note,
                note_through_position=through,
                request_id=key,
                timeout=TIMEOUT_S,
            ),
            lambda reply, began, ended: self.answered(write, reply, began, ended),
        )

    async def delete_messages(self, place: Place) -> None:
        seen = self.seen.get(place)
        if seen is None or not seen.count:
            return
        key = self.new_key()
        after = 0 if self.rng.random() < 0.1 else max(0, seen.count - self.rng.randint(0, 6))
        expected = self.expected(place, 0.4)
        write = self.change(place, key, "DeleteMessages", Truncate(after), expected)

        def take(reply: wire.DeleteMessagesResponse, began: float, ended: float) -> bool:
            write.moves = reply.deleted_message_count > 0
            return self.answered(write, reply.session, began, ended, reply.deleted_message_count)

        await self.write(
            write,
            lambda storage: storage.delete_messages(
                user_id=place.user,
                session_id=place.session,
                after_position=after,
                expected_revision=expected,
                request_id=key,
                timeout=TIMEOUT_S,
            ),
            take,
        )

    async def delete_session(self, place: Place) -> None:
        key = self.new_key()
        write = self.change(place, key, "DeleteSession", None)

        def take(reply: wire.DeleteSessionResponse, began: float, ended: float) -> bool:
            write.answers.append((reply.session_id, reply.deleted_message_count))
            return True

        await self.write(
            write,
            lambda storage: storage.delete_session(
                user_id=place.user, session_id=place.session, request_id=key, timeout=TIMEOUT_S
            ),
            take,
        )

    async def cancel_question(self, place: Place) -> None:
        seen = self.seen.get(place)
        question = self.history.asked_as.get(seen.pending_task or "") if seen else None
        if seen is None or question is None:
            return
        key, task_id = self.new_key(), seen.pending_task or ""
        write = self.change(place, key, "CancelHitlTask", CancelQuestion(question))

        def take(task: Any, began: float, ended: float) -> bool:
            self.saw_task(task, began, ended, key)
            write.answers.append((task.task_id,))
            return True

        await self.write(
            write,
            lambda storage: storage.cancel_hitl_task(
                user_id=place.user, task_id=task_id, request_id=key, timeout=TIMEOUT_S
            ),
            take,
        )

    async def prove_usable(self, place: Place) -> bool:
        """Whether a turn and a message can be stored, which makes the session where there is none."""
        return await self._turns.complete(place) and await self.append(place) is not None

    def change(self, place: Place, key: str, method: str, effect: Effect | None, expected: int | None = None) -> Write:
        return Write(key=key, user=place.user, session=place.session, method=method, effect=effect, expected=expected)

    def answered(self, write: Write, session: session_pb2.Session, began: float, ended: float, *same: object) -> bool:
        """Records the session of a write's answer, and what of it has to stay the same."""
        sight = self.sight(session, began=began, ended=ended, by=f"{write.method} {write.key}")
        self.seen[Place(user=write.user, session=write.session)] = sight
        write.revision = min(write.revision, session.revision) if write.uid else session.revision
        write.uid = write.uid or session.uid
        write.answers.append((session.uid, *same))
        return True

    def expected(self, place: Place, likelihood: float) -> int | None:
        if self.rng.random() >= likelihood:
            return None
        seen = self.seen.get(place)
        return seen.revision if seen else 0

    def _contents(self, place: Place, key: str) -> tuple[str, ...]:
        mark, count = owner(place.user, place.session), self.rng.choice([1, 1, 2, 2, 3, 5])
        return tuple(f"{mark}{key}.{number}/{self.rng.choice('HAS')}" for number in range(count))

    def _metadata(self, place: Place, key: str) -> dict[str, str | None]:
        names = self.rng.sample(_KEYS, self.rng.randint(1, 2))
        changed: dict[str, str | None] = {
            name: None if self.rng.random() < 0.2 else f"{owner(place.user, place.session)}{key}" for name in names
        }
        # At least one is new, so that every change shows.
        changed[names[0]] = f"{owner(place.user, place.session)}{key}"
        return changed


def type_of(content: str) -> str:
    """A message's type is in its text, so that an overwrite keeps it."""
    return _TYPES[content[-1]]
