"""The checker of random histories finds each kind of violation in a history that has it, and in no other."""

import dataclasses
from collections.abc import Callable, Mapping

import pytest

from tests.history.checker import check
from tests.history.model import (
    Append,
    Begin,
    CancelQuestion,
    Effect,
    EndByService,
    Finish,
    Save,
    State,
    Truncate,
    Update,
    owner,
)
from tests.history.record import Absence, Entry, Failure, Fault, History, Life, Outcome, Sight, Write

MARK = owner("u", "s")


def said(*names: str) -> tuple[str, ...]:
    return tuple(f"{MARK}{name}" for name in names)


class Told:
    """Writes a history down as it would have been recorded, one moment after another."""

    def __init__(self) -> None:
        self.history = History(faults=[Fault(kind="storage_killed", began=0, ended=0, in_flight=3)], lost_replies=1)
        self.moment = 100.0
        self.state = State()
        self.revision = 0
        self.uid = "uid-1"

    def write(self, key: str, effect: Effect, method: str = "AppendMessages", **fields: object) -> Write:
        """An acknowledged write, which has the first of its possible effects."""
        self.state = next(effect.results(self.state))
        self.revision += 1
        write = self.asked(key, effect, method)
        write.outcome, write.uid, write.revision = Outcome.OK, self.uid, self.revision
        write.answers = [(self.uid,)]
        for name, value in fields.items():
            setattr(write, name, value)
        self.see(f"{method} {key}", whole=False)
        write.ended = self.moment
        return write

    def asked(self, key: str, effect: Effect | None, method: str = "AppendMessages") -> Write:
        """A write whose fate nobody knows."""
        self.moment += 1
        write = Write(key=key, user="u", session="s", method=method, effect=effect, began=self.moment)
        self.history.writes.append(write)
        return write

    def see(self, by: str = "LoadSession", *, whole: bool = True, **other: object) -> Sight:
        """A reply that shows the session as it is, but for what is given."""
        self.moment += 1
        sight = Sight(
            user="u",
            session="s",
            began=self.moment,
            ended=self.moment + 0.5,
            by=by,
            revision=self.revision,
            uid=self.uid,
            count=len(self.state.messages),
            entries=entries(self.state.messages) if whole else None,
            metadata=dict(self.state.metadata),
            title=self.state.title or "s",
            active_run=f"run of {self.state.active}" if self.state.active else "",
            pending_task=f"task of {self.state.pending}" if self.state.pending else "",
            note="",
        )
        if self.state.active:
            self.history.begun_as[f"run of {self.state.active}"] = self.state.active
        if self.state.pending:
            self.history.asked_as[f"task of {self.state.pending}"] = self.state.pending
        sight = dataclasses.replace(sight, **other)  # type: ignore[arg-type]
        self.moment = max(self.moment, sight.ended)
        self.history.sights.append(sight)
        return sight

    def begin(self, key: str, **fields: object) -> Write:
        given: dict[str, object] = {"content": said(f"{key}?")[0], "conflict": "REJECT", "policy": "ANSWER"}
        effect = Begin(run=key, **given | fields)  # type: ignore[arg-type]
        return self.write(key, effect, "BeginRun", lease_s=5.0)

    def finish(self, key: str, run: str, status: str = "COMPLETED") -> Write:
        effect = Finish(run=run, status=status, reply=said(f"{key}!")[0], metadata={})
        return self.write(key, effect, "FinishRun")

    def delete(self) -> None:
        """The session is deleted, and what is written next makes it anew."""
        write = self.asked("delete", None, "DeleteSession")
        self.moment += 1
        write.outcome, write.ended = Outcome.OK, self.moment
        self.state, self.revision, self.uid = State(), 0, "uid-2"


def entries(contents: tuple[str, ...]) -> tuple[Entry, ...]:
    return tuple(Entry(position, f"id of {content}", content, 7) for position, content in enumerate(contents, start=1))


def a_day() -> Told:
    """A little of everything, and nothing wrong."""
    told = Told()
    told.write("a", Append(said("a0", "a1")))
    told.see()
    told.write("b", Save(said("a1", "b0"), {"k1": f"{MARK}b"}), "SaveSession")
    told.write("c", Update({"k1": None, "k2": f"{MARK}c"}, f"{MARK}c"), "UpdateSession")
    told.begin("d")
    told.finish("e", "d", "AWAITING_INPUT")
    told.begin("f").claimed = "task"
    told.finish("g", "f")
    told.write("h", Truncate(3), "DeleteMessages")
    told.see()
    return told


def test_a_clean_history_holds() -> None:
    told = a_day()
    told.delete()
    told.write("z", Append(said("z0")))
    told.see()
    assert check(told.history) == []


def test_a_write_of_unknown_fate_may_have_happened_or_not() -> None:
    for happened in (True, False):
        told = a_day()
        lost = Append(said("x0"))
        told.asked("x", lost)
        if happened:
            told.state = next(lost.results(told.state))
            told.revision += 1
        told.see()
        told.write("y", Append(said("y0")))
        told.see()
        assert check(told.history) == []


def test_what_only_a_page_has_seen_is_explained_by_writes_of_unknown_fate() -> None:
    for is_new in (False, True):
        told = a_day()
        if is_new:
            told.delete()
        lost = Append(said("x0"))
        told.asked("x", lost)
        told.state, told.revision = next(lost.results(told.state)), told.revision + 1
        told.see(uid=None, count=None, metadata=None, title=None)
        assert check(told.history) == []


def test_an_answer_to_a_late_repeat_may_show_a_later_revision_than_the_write_made() -> None:
    told = a_day()
    first = Append(said("x0"))
    write = told.asked("x", first)
    told.state, told.revision = next(first.results(told.state)), told.revision + 1
    told.write("y", Append(said("y0")))
    told.see("AppendMessages x", whole=False)
    write.outcome, write.uid, write.revision, write.ended = Outcome.OK, told.uid, told.revision, told.moment
    told.see()
    assert check(told.history) == []


def test_a_run_gives_way_to_another_after_its_grace() -> None:
    told = a_day()
    told.begin("x")
    told.moment += 1
    asked = told.moment
    told.moment += 2
    told.begin("y", conflict="INTERRUPT").began = asked
    told.finish("z", "y")
    assert check(told.history) == []


def test_a_run_that_its_holder_left_alone_may_be_ended_with_what_it_said() -> None:
    told = a_day()
    told.begin("x")
    told.history.said["x"] = ("some", " words")
    told.moment += 6
    ended = EndByService("x", ("some", " words"))
    told.state, told.revision = list(ended.results(told.state))[2], told.revision + 1
    told.see(entries=entries(told.state.messages))
    assert told.state.messages[-1] == "some words"
    # The words carry no mark of their session, which is a rule of its own.
    assert {violation.rule for violation in check(told.history)} == {"nothing_is_anothers"}


def _lost_write(told: Told) -> None:
    told.write("x", Append(said("x0")))
    told.state = dataclasses.replace(told.state, messages=told.state.messages[:-1])
    told.revision += 1
    told.see()


def _half_a_batch(told: Told) -> None:
    told.asked("x", Append(said("x0", "x1")))
    told.state, told.revision = next(Append(said("x0")).results(told.state)), told.revision + 1
    told.see()


def _lost_update(told: Told) -> None:
    told.write("x", Update({"k3": f"{MARK}x"}, ""), "UpdateSession")
    told.state = dataclasses.replace(told.state, metadata={"k3": f"{MARK}x"})
    told.see()


def _torn_read(told: Told) -> None:
    told.see(count=len(told.state.messages) + 1)


def _page_of_no_state(told: Told) -> None:
    told.see(uid=None, count=None, metadata=None, title=None, entries=entries(said("a0", "b0")))


def _gap(told: Told) -> None:
    seen = told.see()
    assert seen.entries
    told.see(entries=(*seen.entries[:-1], seen.entries[-1]._replace(position=9)))


def _doubled(told: Told) -> None:
    told.write("x", Append(said("x0", "x0")))
    told.see()


def _anothers(told: Told) -> None:
    told.see(title=f"{owner('u', 'other')}x")


def _another_time(told: Told) -> None:
    seen = told.see()
    told.see(entries=tuple(entry._replace(create_time_ns=8) for entry in seen.entries or ()))


def _stale_read(told: Told) -> None:
    old = told.see()
    told.write("x", Append(said("x0")))
    told.see(revision=old.revision, entries=old.entries, count=old.count)


def _stale_note(told: Told) -> None:
    told.history.notes["u", "s"] = {f"{MARK}n": 3}
    told.see(note=f"{MARK}n", note_through=3)
    told.see()


def _foreign_note(told: Told) -> None:
    told.see(note=f"{MARK}never written", note_through=1)


def _undead(told: Told) -> None:
    seen = told.see()
    told.delete()
    told.see(uid=seen.uid, revision=seen.revision, count=seen.count, entries=seen.entries, metadata=None, title=None)


def _old_messages_under_a_new_uid(told: Told) -> None:
    told.delete()
    told.state, told.revision = State(messages=said("a1", "z0")), 1
    told.see()


def _missing(told: Told) -> None:
    told.see()
    told.history.absences.append(
        Absence(user="u", session="s", began=told.moment + 1, ended=told.moment + 2, by="GetSession")
    )
    told.moment += 3
    told.see()


def _two_winners(told: Told) -> None:
    told.write("x", Append(said("x0")), expected=told.revision)
    told.write("y", Append(said("y0")), expected=told.revision - 1)


def _refused_at_its_revision(told: Told) -> None:
    write = told.asked("x", Append(said("x0")))
    write.outcome, write.reason, write.expected = Outcome.REFUSED, "REVISION_MISMATCH", told.revision
    write.told = {"revision": str(told.revision)}


def _refused_and_done(told: Told) -> None:
    effect = Append(said("x0"))
    write = told.asked("x", effect)
    write.outcome, write.reason, write.ended = Outcome.REFUSED, "RUN_IN_PROGRESS", told.moment
    told.state, told.revision = next(effect.results(told.state)), told.revision + 1
    told.see()


def _another_answer(told: Told) -> None:
    told.write("x", Append(said("x0"))).answers = [("uid-1", 9), ("uid-1", 10)]


def _answered_twice(told: Told) -> None:
    told.begin("x").claimed = "task"
    told.finish("y", "x")


def _settled_and_open_again(told: Told) -> None:
    for state in ("ANSWERED", "PENDING"):
        told.moment += 1
        life = Life(thing="task", state=state, began=told.moment, ended=told.moment + 0.5, by="ListHitlTasks")
        told.history.tasks.append(life)


def _withdrawn_and_still_waiting(told: Told) -> None:
    told.begin("x")
    asked = told.finish("y", "x", "AWAITING_INPUT")
    told.write("z", CancelQuestion(said("y!")[0]), "CancelHitlTask")
    told.see(pending_task=f"task of {said('y!')[0]}")
    assert asked.outcome is Outcome.OK


def _finished_by_a_stale_holder(told: Told) -> None:
    told.begin("x")
    told.begin("y", conflict="INTERRUPT")
    told.state = dataclasses.replace(told.state, active="x")
    told.finish("z", "x")


def _two_holders(told: Told) -> None:
    told.begin("x")
    told.state = dataclasses.replace(told.state, active="")
    told.begin("y")


def _written_while_a_run_holds(told: Told) -> None:
    told.begin("x")
    told.state = dataclasses.replace(told.state, active="")
    told.write("y", Append(said("y0")))


def _ended_within_its_lease(told: Told) -> None:
    told.begin("x")
    told.state, told.revision = next(EndByService("x").results(told.state)), told.revision + 1
    told.see()


def _finished_twice(told: Told) -> None:
    told.begin("x")
    told.finish("y", "x")
    again = told.asked("z", Finish(run="x", status="FAILED", reply="", metadata={}), "FinishRun")
    again.outcome = Outcome.OK


def _failed_inside(told: Told) -> None:
    told.history.failures.append(Failure("x", "INTERNAL"))


def _fault_without_traffic(told: Told) -> None:
    told.history.faults.append(Fault(kind="valkey_killed", began=1, ended=2, in_flight=0))


def _no_lost_reply(told: Told) -> None:
    told.history.lost_replies = 0


def _replaced_without_grace(told: Told) -> None:
    told.begin("x")
    told.begin("y", conflict="INTERRUPT")


def _no_fault(told: Told) -> None:
    told.history.faults.clear()


BROKEN: Mapping[str, tuple[Callable[[Told], None], str]] = {
    "an acknowledged message is gone": (_lost_write, "every_state_is_explained"),
    "half a batch is stored": (_half_a_batch, "every_state_is_explained"),
    "metadata of others is overwritten": (_lost_update, "every_state_is_explained"),
    "the count is another state's": (_torn_read, "every_state_is_explained"),
    "a page mixes states": (_page_of_no_state, "pages_are_whole"),
    "positions have a gap": (_gap, "positions_have_no_gaps"),
    "a message is there twice": (_doubled, "nothing_is_doubled"),
    "another session's title": (_anothers, "nothing_is_anothers"),
    "a message has another time": (_another_time, "messages_keep_id_and_time"),
    "a read is older than what was told": (_stale_read, "reads_are_fresh"),
    "a note goes back": (_stale_note, "notes_are_fresh"),
    "a note from nowhere": (_foreign_note, "notes_are_ours"),
    "a deleted session is seen": (_undead, "deleted_stays_deleted"),
    "old messages under a new uid": (_old_messages_under_a_new_uid, "every_state_is_explained"),
    "an existing session is not found": (_missing, "what_exists_is_found"),
    "two writes over one revision": (_two_winners, "one_write_wins_a_revision"),
    "refused at the expected revision": (_refused_at_its_revision, "one_write_wins_a_revision"),
    "refused, and done all the same": (_refused_and_done, "every_state_is_explained"),
    "a repeat gets another answer": (_another_answer, "a_repeat_gets_the_first_answer"),
    "a question is answered twice": (_answered_twice, "a_question_is_consumed_once"),
    "an answered question is open again": (_settled_and_open_again, "what_has_ended_stays_so"),
    "a withdrawn question still waits": (_withdrawn_and_still_waiting, "every_state_is_explained"),
    "a stale holder finishes": (_finished_by_a_stale_holder, "every_state_is_explained"),
    "two runs hold a session": (_two_holders, "every_state_is_explained"),
    "a write while a run holds": (_written_while_a_run_holds, "every_state_is_explained"),
    "a run is ended within its lease": (_ended_within_its_lease, "a_lease_holds"),
    "a run is finished twice": (_finished_twice, "one_run_finishes_once"),
    "an internal failure": (_failed_inside, "no_failure_of_the_service"),
    "a fault met no traffic": (_fault_without_traffic, "every_fault_met_traffic"),
    "a run is replaced without its grace": (_replaced_without_grace, "a_lease_holds"),
    "no reply was lost": (_no_lost_reply, "some_replies_were_lost"),
    "no fault at all": (_no_fault, "every_fault_met_traffic"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_violation_is_reported_by_its_rule(broken: str) -> None:
    told = a_day()
    breaks, rule = BROKEN[broken]
    breaks(told)
    assert rule in {violation.rule for violation in check(told.history)}
