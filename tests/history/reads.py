"""What a client reads, and what it notes of every reply."""

import random
from collections.abc import Sequence
from typing import Any

from askback.client import StorageClient
from askback.rag.v1.hitl_pb2 import HitlState
from askback.storage.v1 import session_pb2
from askback.storage.v1.run_pb2 import RunStatus
from tests.history.caller import TIMEOUT_S, Caller, Place
from tests.history.record import Absence, Entry, Failure, History, Life, Sight

# Joined by ":", as a careless key would be, the first of each are the same.
PLACES = tuple(
    Place(user=user, session=session)
    for user, sessions in (("u", ("a:b", "c", "d", "e")), ("u:a", ("b", "c", "d")), ("v", ("c", "d", "e")))
    for session in sessions
)


class Reader(Caller):
    """One client's reads; what it saw last decides what it tries next."""

    def __init__(self, name: str, *, rng: random.Random, replicas: Sequence[StorageClient], history: History):
        super().__init__(name, rng=rng, replicas=replicas, history=history)
        self.seen: dict[Place, Sight] = {}
        """Of each session, what this client saw last."""
        self.seen_whole: dict[Place, Sight] = {}
        """Of each session, the last sight that had every message."""

    async def load(self, place: Place, *, whole: bool | None = None) -> Sight | None:
        newest = 0 if whole or (whole is None and self.rng.random() < 0.5) else self.rng.randint(1, 30)
        by = f"LoadSession {self.new_key()}"
        answer = await self.read(
            place,
            by,
            lambda storage: storage.load_session(
                user_id=place.user, session_id=place.session, max_messages=newest, timeout=TIMEOUT_S
            ),
        )
        if answer is None:
            return None
        reply, began, ended = answer
        begin = max(0, reply.session.message_count - newest) if newest else 0
        sight = self.sight(reply.session, began=began, ended=ended, by=by, messages=reply.messages, begin=begin)
        self.seen[place] = sight
        if not begin:
            self.seen_whole[place] = sight
        return sight

    async def get(self, place: Place) -> None:
        by = f"GetSession {self.new_key()}"
        answer = await self.read(
            place,
            by,
            lambda storage: storage.get_session(user_id=place.user, session_id=place.session, timeout=TIMEOUT_S),
        )
        if answer is not None:
            session, began, ended = answer
            self.seen[place] = self.sight(session, began=began, ended=ended, by=by)

    async def get_message(self, place: Place) -> None:
        whole = self.seen_whole.get(place)
        if whole is None or not whole.entries:
            return
        entry, by = self.rng.choice(whole.entries), f"GetMessage {self.new_key()}"
        answer = await self.read(
            place,
            by,
            lambda storage: storage.get_message(
                user_id=place.user, session_id=place.session, message_id=entry.message_id, timeout=TIMEOUT_S
            ),
        )
        if answer is not None and answer[0].content != entry.content:
            self.history.failures.append(Failure(by, "OTHER_MESSAGE"))

    async def list_messages(self, place: Place) -> None:
        """Page by page; each page is a state of its own."""
        descending, size = self.rng.random() < 0.5, self.rng.choice([5, 20, 100, 1_000])
        token, after = "", 0
        for _ in range(4):
            by = f"ListMessages {self.new_key()}"
            answer = await self.read(
                place,
                by,
                lambda storage, token=token: storage.list_messages(  # type: ignore[misc]
                    user_id=place.user,
                    session_id=place.session,
                    page_size=size,
                    page_token=token,
                    descending=descending,
                    timeout=TIMEOUT_S,
                ),
            )
            if answer is None:
                return
            page, began, ended = answer
            token = page.next_page_token
            entries = entries_of(page.messages)
            self._page(place, page.revision, began, ended, by, entries, after=after, more=bool(token), down=descending)
            if not token:
                return
            after = entries[-1].position

    def _page(
        self,
        place: Place,
        revision: int,
        began: float,
        ended: float,
        by: str,
        entries: tuple[Entry, ...],
        *,
        after: int,
        more: bool,
        down: bool,
    ) -> None:
        if down:
            entries = entries[::-1]
            # A page that begins at a position may meet a history that has become shorter.
            begin = entries[0].position - 1 if more else 0
            end = after - 1 if after else None
        else:
            begin, end = after, entries[-1].position if more else None
        self.history.sights.append(
            Sight(
                user=place.user,
                session=place.session,
                began=began,
                ended=ended,
                by=by,
                revision=revision,
                entries=entries,
                begin=begin,
                end=end,
            )
        )

    async def list_sessions(self, place: Place) -> None:
        view, by = self.rng.choice(["BASIC", "FULL", "ID"]), f"ListSessions {self.new_key()}"
        answer = await self.read(
            place, by, lambda storage: storage.list_sessions(user_id=place.user, view=view, timeout=TIMEOUT_S)
        )
        if answer is None:
            return
        page, began, ended = answer
        listed = {session.session_id for session in page.sessions}
        if view != "ID":
            for session in page.sessions:
                self.sight(session, began=began, ended=ended, by=by, basic=view == "BASIC")
        for other in PLACES:
            if other.user == place.user and other.session not in listed:
                self.history.absences.append(
                    Absence(user=other.user, session=other.session, began=began, ended=ended, by=by)
                )

    async def list_questions(self, place: Place) -> None:
        by = f"ListHitlTasks {self.new_key()}"
        answer = await self.read(
            place,
            by,
            lambda storage: storage.list_hitl_tasks(
                user_id=place.user, session_id=place.session, page_size=1_000, timeout=TIMEOUT_S
            ),
        )
        if answer is not None:
            page, began, ended = answer
            for task in page.tasks:
                self.saw_task(task, began, ended, by)

    async def list_runs(self, place: Place) -> None:
        by = f"ListRuns {self.new_key()}"
        answer = await self.read(
            place,
            by,
            lambda storage: storage.list_runs(
                user_id=place.user, session_id=place.session, page_size=1_000, timeout=TIMEOUT_S
            ),
        )
        if answer is not None:
            page, began, ended = answer
            for run in page.runs:
                self.saw_run(run, began, ended, by)

    def sight(
        self,
        session: session_pb2.Session,
        *,
        began: float,
        ended: float,
        by: str,
        messages: Sequence[session_pb2.Message] | None = None,
        begin: int = 0,
        end: int | None = None,
        basic: bool = False,
    ) -> Sight:
        """Records a session as a reply shows it."""
        sight = Sight(
            user=session.user_id,
            session=session.session_id,
            began=began,
            ended=ended,
            by=by,
            revision=session.revision,
            uid=session.uid,
            count=session.message_count,
            entries=None if messages is None else entries_of(messages),
            begin=begin,
            end=end,
            metadata=None if basic else {key: value.string_value for key, value in session.metadata.fields.items()},
            title=session.title,
            active_run=session.active_run_id,
            pending_task=session.pending_hitl_task_id,
            note=None if basic else session.note,
            note_through=session.note_through_position,
        )
        self.history.sights.append(sight)
        return sight

    def saw_task(self, task: Any, began: float, ended: float, by: str) -> None:
        self.history.asked_as[task.task_id] = task.prompt
        state = HitlState.Name(task.state).removeprefix("HITL_STATE_")
        self.history.tasks.append(Life(thing=task.task_id, state=state, began=began, ended=ended, by=by))

    def saw_run(self, run: Any, began: float, ended: float, by: str) -> None:
        self.history.begun_as[run.run_id] = run.request_id
        status = RunStatus.Name(run.status).removeprefix("RUN_STATUS_")
        self.history.runs.append(Life(thing=run.run_id, state=status, began=began, ended=ended, by=by))


def entries_of(messages: Sequence[session_pb2.Message]) -> tuple[Entry, ...]:
    return tuple(
        Entry(message.position, message.message_id, message.content, message.create_time.ToNanoseconds())
        for message in messages
    )
