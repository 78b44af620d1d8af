"""How a client of the test calls: over either replica, again until it knows, and with everything recorded."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import grpc

from askback.client import StorageClient
from askback.client.errors import (
    AlreadyExists,
    AskbackError,
    Cancelled,
    Contention,
    DataLoss,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotImplementedByService,
    Overloaded,
    SessionDeleted,
    SessionNotFound,
    Unavailable,
)
from tests.history.record import Absence, Failure, History, Outcome, Write, now

T = TypeVar("T")

Send = Callable[[StorageClient], Awaitable[T]]
Take = Callable[[T, float, float], bool]
"""Records an answer and when its try began and ended; False: it is none yet, and has to be asked for again."""

TIMEOUT_S = 4.0
TRIES = 10
LONGEST_PAUSE_S = 0.5
REPEATED_AT_ONCE = 0.05
REPEATED_NEXT = 0.1
REPEATED_LATE = 0.15
AVOIDED, AVOIDED_S = 0.9, 1.0

_UNANSWERED = (Unavailable, DeadlineExceeded, Cancelled)
_NOT_NOW = (Contention, Overloaded)
_NEVER = (Internal, InvalidArgument, DataLoss, AlreadyExists, NotImplementedByService)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A session, by its name."""

    user: str
    session: str


class Caller:
    """One client with its own random stream, and a channel to each replica."""

    def __init__(self, name: str, *, rng: random.Random, replicas: Sequence[StorageClient], history: History):
        self.name = name
        self.rng = rng
        self.history = history
        self._replicas = replicas
        self._count = 0
        self._avoided: dict[int, float] = {}
        """Replicas that did not answer, and until when others are asked."""
        self._late: list[Callable[[], Awaitable[None]]] = []

    def new_key(self) -> str:
        """Of the next request: its request_id, and a part of every text in it."""
        self._count += 1
        return f"{self.name}.{self._count}"

    async def read(self, place: Place, by: str, send: Send[T]) -> tuple[T, float, float] | None:
        """The answer, and when the call began and ended; None where there is none."""
        began = now()
        try:
            answer = await self._try(send)
        except AskbackError as error:
            self._note(error, place, by, began)
            return None
        return answer, began, now()

    async def write(self, write: Write, send: Send[T], take: Take[T]) -> T | None:
        """Sends the request until its fate is known, and sometimes more often; returns the first answer."""
        self.history.writes.append(write)
        write.began = now()
        twin = None
        if self.rng.random() < REPEATED_AT_ONCE:
            twin = asyncio.create_task(self._repeat(write, send, take))
        answer = await self._until_known(write, send, take)
        if twin is not None:
            await twin
        write.ended = now()
        if answer is not None and self.rng.random() < REPEATED_NEXT:
            await self._repeat(write, send, take)
        if answer is not None and self.rng.random() < REPEATED_LATE:
            self._late.append(lambda: self._repeat(write, send, take))
        return answer

    async def repeat_late(self) -> None:
        """Sends a request of long ago again."""
        if self._late:
            await self._late.pop(self.rng.randrange(len(self._late)))()

    async def _until_known(self, write: Write, send: Send[T], take: Take[T]) -> T | None:
        for number in range(TRIES):
            began = now()
            try:
                answer = await self._try(send)
            except AskbackError as error:
                self._note(error, Place(user=write.user, session=write.session), write.key, began)
                if not self._again(write, error):
                    return None
            else:
                if take(answer, began, now()):
                    write.outcome = Outcome.OK
                    return answer
            await asyncio.sleep(self.rng.uniform(0.3, 1.0) * min(LONGEST_PAUSE_S, 0.05 * 2**number))
        return None

    async def _repeat(self, write: Write, send: Send[T], take: Take[T]) -> None:
        """One more try under the same request_id, whatever became of the others."""
        began = now()
        known = write.outcome is Outcome.OK
        try:
            answer = await self._try(send)
        except AskbackError as error:
            self._note(error, Place(user=write.user, session=write.session), write.key, began)
            if self._again(write, error, repeat=True) or isinstance(error, SessionDeleted):
                return
            if known and not (write.method == "FinishRun" and error.reason == "RUN_NOT_FOUND"):
                write.answers.append(("refused", error.reason))
        else:
            if take(answer, began, now()):
                write.outcome = Outcome.OK

    def _again(self, write: Write, error: AskbackError, *, repeat: bool = False) -> bool:
        if _is_unanswered(error):
            write.unsure = True
            self.history.lost_replies += 1
            return True
        if isinstance(error, _NOT_NOW):
            return True
        if not repeat and write.outcome is not Outcome.OK:
            write.outcome = Outcome.GONE if isinstance(error, SessionDeleted) else Outcome.REFUSED
            write.reason, write.told = error.reason, error.metadata
        return False

    def _note(self, error: AskbackError, place: Place, by: str, began: float) -> None:
        """Records what even a refusal tells."""
        if isinstance(error, SessionNotFound):
            self.history.absences.append(
                Absence(user=place.user, session=place.session, began=began, ended=now(), by=by)
            )
        elif isinstance(error, _NEVER) and not _is_unanswered(error):
            self.history.failures.append(Failure(by, error.reason or error.code.name))

    async def _try(self, send: Send[T]) -> T:
        """On either replica; on one that has just failed only now and then, as a balancer would."""
        numbers = range(len(self._replicas))
        live = [number for number in numbers if self._avoided.get(number, 0.0) < now()]
        number = self.rng.choice(live if live and self.rng.random() < AVOIDED else numbers)
        try:
            with self.history.call():
                return await send(self._replicas[number])
        except AskbackError as error:
            if _is_unanswered(error):
                self._avoided[number] = now() + AVOIDED_S
            raise


def _is_unanswered(error: AskbackError) -> bool:
    # Without a reason it is the transport's: a stream that was cut may show as one of these too.
    cut = not error.reason and error.code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    return cut or isinstance(error, _UNANSWERED)
