"""What a client does as an agent: turns that are begun, kept alive, finished, forgotten, tried again."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from askback.storage.v1 import run_service_pb2 as wire
from askback.storage.v1.run_pb2 import RUN_STATUS_QUEUED
from tests.history.caller import TIMEOUT_S, Place
from tests.history.model import Begin, Finish, owner
from tests.history.record import Outcome, now

if TYPE_CHECKING:
    from tests.history.workload import Client

LEASE_S = 5.0
FREE_WITHIN_S = 2 * LEASE_S
CONTEXT_MESSAGES = 20
_STATUSES = {"COMPLETED": 55, "AWAITING_INPUT": 25, "FAILED": 10, "CANCELLED": 6}


@dataclass(frozen=True, slots=True)
class _Held:
    """A run that this client holds, or has held."""

    place: Place
    key: str
    message: str
    run_id: str
    token: int


class Turns:
    """The runs of one client."""

    def __init__(self, client: "Client"):
        self._client = client
        self._rng = client.rng
        self._history = client.history
        self._forgotten: list[tuple[float, _Held]] = []
        self._in_the_way = ""
        """The run that the last BeginRun was refused for, or that it has waiting in the queue."""
        self.abandon_until = 0.0

    async def turn(self, place: Place) -> None:
        held = await self._begin(
            place,
            conflict=self._rng.choices(["REJECT", "ENQUEUE", "INTERRUPT", "ROLLBACK"], [60, 14, 13, 13])[0],
            policy=self._rng.choices(["ANSWER", "REPLACE", "REJECT"], [60, 25, 15])[0],
            answers=self._waiting(place) if self._rng.random() < 0.5 else "",
        )
        if held is not None:
            await self._go_on(held)
        elif self._rng.random() < 0.5:
            await self._cancel_queued(place)

    async def complete(self, place: Place) -> bool:
        """A turn from end to end, once whoever has the session is gone."""
        give_up = now() + FREE_WITHIN_S
        while now() < give_up:
            held = await self._begin(place, conflict="REJECT", policy="REPLACE", answers="")
            if held is not None:
                return await self._finish(held, "COMPLETED")
            # What somebody left in the queue keeps its place for longer than any lease.
            await self._cancel_queued(place)
            await asyncio.sleep(0.1)
        return False

    async def finish_forgotten(self, _: Place) -> None:
        """Writes the end of a run that was left alone for longer than its lease, as a worker that hung would."""
        for moment, held in self._forgotten:
            if now() > moment:
                self._forgotten.remove((moment, held))
                await self._finish(held, "COMPLETED")
                return

    async def cancel_run(self, place: Place) -> None:
        seen = self._client.seen.get(place)
        if seen is not None and seen.active_run:
            await self._cancel(place, seen.active_run)

    async def _cancel_queued(self, place: Place) -> None:
        run_id, by = self._in_the_way, f"GetRun {self._client.new_key()}"
        if not run_id:
            return
        answer = await self._client.read(
            place, by, lambda storage: storage.get_run(user_id=place.user, run_id=run_id, timeout=TIMEOUT_S)
        )
        if answer is not None:
            run, began, ended = answer
            self._client.saw_run(run, began, ended, by)
            if run.status == RUN_STATUS_QUEUED:
                await self._cancel(place, run_id)

    async def _cancel(self, place: Place, run_id: str) -> None:
        client, key = self._client, self._client.new_key()
        write = client.change(place, key, "CancelRun", None)

        def take(run: object, began: float, ended: float) -> bool:
            client.saw_run(run, began, ended, key)
            return True

        await client.write(
            write,
            lambda storage: storage.cancel_run(user_id=place.user, run_id=run_id, timeout=TIMEOUT_S),
            take,
        )

    def _waiting(self, place: Place) -> str:
        """The question that this client last saw there, whatever became of it; "" where nobody knows which it is."""
        seen = self._client.seen.get(place)
        task_id = seen.pending_task or "" if seen else ""
        return task_id if task_id in self._history.asked_as else ""

    async def _begin(
        self, place: Place, *, conflict: str, policy: str, answers: str, retries: _Held | None = None
    ) -> _Held | None:
        client, key = self._client, self._client.new_key()
        mark = owner(place.user, place.session)
        message = "" if retries else f"{mark}{key}.0/H"
        question = self._history.asked_as.get(answers, "") if answers else ""
        effect = Begin(
            run=key,
            content=message,
            conflict=conflict,
            policy=policy,
            answers=question,
            title=f"{mark}{key}",
            retries=retries.message if retries else "",
            said=self._history.said,
        )
        write = client.change(place, key, "BeginRun", effect)
        write.lease_s = LEASE_S
        self._in_the_way = ""

        def take(reply: wire.BeginRunResponse, began: float, ended: float) -> bool:
            client.saw_run(reply.run, began, ended, key)
            if reply.run.status == RUN_STATUS_QUEUED:
                self._in_the_way = reply.run.run_id
                return False
            client.answered(write, reply.session, began, ended, reply.run.run_id)
            if not retries:
                write.position = write.position or reply.run.human_position
            if not (write.position or reply.run.human_position):
                # Cancelled before its turn came, or taken back since: whether it ever began is not told.
                write.uid = ""
            if reply.HasField("claimed_task"):
                client.saw_task(reply.claimed_task, began, ended, key)
                write.claimed = reply.claimed_task.task_id
            if not reply.already_begun:
                before = reply.run.human_position - 1
                client.sight(
                    reply.session,
                    began=began,
                    ended=ended,
                    by=f"the context of BeginRun {key}",
                    messages=reply.context,
                    begin=max(0, before - CONTEXT_MESSAGES),
                    end=before,
                )
            return True

        reply = await client.write(
            write,
            lambda storage: storage.begin_run(
                user_id=place.user,
                session_id=place.session,
                message=message,
                answers_task_id=answers,
                pending_hitl_policy=policy,
                conflict_policy=conflict,
                lease=LEASE_S,
                max_context_messages=CONTEXT_MESSAGES,
                title_if_new=f"{mark}{key}",
                retries_run_id=retries.run_id if retries else "",
                holder_id=key,
                request_id=key,
                timeout=TIMEOUT_S,
            ),
            take,
        )
        if write.told:
            self._in_the_way = write.told.get("active_run_id", "")
        if reply is None or not reply.is_holder:
            return None
        begun_with = retries.message if retries else message
        return _Held(place, key, begun_with, reply.run.run_id, reply.fencing_token)

    async def _go_on(self, held: _Held) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.2))
        if self._rng.random() < 0.3:
            await self._say(held)
        if self._rng.random() < 0.3 and await self._renew(held):
            await self._finish(held, "CANCELLED")
            return
        if self._rng.random() < 0.06 and now() < self.abandon_until:
            self._forgotten.append((now() + LEASE_S + self._rng.uniform(0.2, 2.0), held))
            return
        status = self._rng.choices(list(_STATUSES), list(_STATUSES.values()))[0]
        finished = await self._finish(held, status)
        if finished and status in ("FAILED", "CANCELLED") and self._rng.random() < 0.5:
            again = await self._begin(held.place, conflict="REJECT", policy="ANSWER", answers="", retries=held)
            if again is not None:
                await self._finish(again, "COMPLETED")

    async def _say(self, held: _Held) -> None:
        pieces = (f"{owner(held.place.user, held.place.session)}{held.key}.said", "/A")
        self._history.said[held.key] = pieces
        await self._client.read(
            held.place,
            f"AppendRunEvents {held.key}",
            lambda storage: storage.append_run_events(
                user_id=held.place.user,
                run_id=held.run_id,
                fencing_token=held.token,
                events=[
                    {"sequence": number, "payload": piece.encode(), "reply_text": piece}
                    for number, piece in enumerate(pieces, start=1)
                ],
                timeout=TIMEOUT_S,
            ),
        )

    async def _renew(self, held: _Held) -> bool:
        """Whether someone asked the run to stop."""
        by = f"RenewRun {self._client.new_key()}"
        answer = await self._client.read(
            held.place,
            by,
            lambda storage: storage.renew_run(
                user_id=held.place.user, run_id=held.run_id, fencing_token=held.token, timeout=TIMEOUT_S
            ),
        )
        if answer is None:
            return False
        run, began, ended = answer
        self._client.saw_run(run, began, ended, by)
        self._history.renewals.setdefault(held.key, []).append(began)
        return run.cancel_requested

    async def _finish(self, held: _Held, status: str) -> bool:
        client, key, place = self._client, self._client.new_key(), held.place
        mark = owner(place.user, place.session)
        says = status in ("COMPLETED", "AWAITING_INPUT") or self._rng.random() < 0.6
        reply_text = f"{mark}{key}.0/A" if says else ""
        changed: dict[str, str | None] = {"k1": f"{mark}{key}"} if self._rng.random() < 0.3 else {}
        write = client.change(
            place, key, "FinishRun", Finish(run=held.key, status=status, reply=reply_text, metadata=changed)
        )

        def take(reply: wire.FinishRunResponse, began: float, ended: float) -> bool:
            client.saw_run(reply.run, began, ended, key)
            if reply.HasField("opened_task"):
                client.saw_task(reply.opened_task, began, ended, key)
            write.position = write.position or reply.run.ai_position
            # Where a later run took the turn back, its messages are gone from the answer.
            return client.answered(write, reply.session, began, ended, reply.run.run_id, reply.run.status)

        await client.write(
            write,
            lambda storage: storage.finish_run(
                user_id=place.user,
                run_id=held.run_id,
                fencing_token=held.token,
                status=status,
                reply={"type": "AI", "content": reply_text} if reply_text else None,
                session_metadata=changed,
                opened_task={"original_question": held.message, "prompt": reply_text, "kind": "CLARIFY"}
                if status == "AWAITING_INPUT"
                else None,
                timeout=TIMEOUT_S,
            ),
            take,
        )
        return write.outcome is Outcome.OK
