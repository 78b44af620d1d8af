"""Judges a history: each rule that it broke, and where.

An outcome that nobody was told is allowed to have happened once, later, or never; everything else has to be
explained. Every rule is one function.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.storage.store.base import HOLDER_GRACE
from tests.history.model import Begin, Finish, owner
from tests.history.record import History, Outcome, Sight, Write
from tests.history.replay import Replay, Replayed, Watermark, disagreement

FAULT_ECHO_S = 3.0
"""How long after a fault a transport may still send a call again by itself."""
GRACE_S = HOLDER_GRACE.total_seconds()
ENDED = ("COMPLETED", "AWAITING_INPUT", "CANCELLED", "FAILED")
SETTLED = ("ANSWERED", "EXPIRED", "CANCELLED")

OF_THE_RUN = ("every_fault_met_traffic", "some_replies_were_lost")
"""Rules that the test itself breaks, not the service."""


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


Rule = Callable[[History], Iterator[Violation]]


def check(history: History) -> list[Violation]:
    """Everything that is wrong with it, the plainest first."""
    plain = [violation for rule in RULES for violation in rule(history)]
    return [*plain, *_replays(history)]


def no_failure_of_the_service(history: History) -> Iterator[Violation]:
    for failure in history.failures:
        yield Violation("no_failure_of_the_service", f"{failure.by} ended {failure.reason}")


def every_fault_met_traffic(history: History) -> Iterator[Violation]:
    if not history.faults:
        yield Violation("every_fault_met_traffic", "there was no fault")
    for fault in history.faults:
        if not fault.in_flight:
            yield Violation("every_fault_met_traffic", f"no call was under way when {fault.kind} began")


def some_replies_were_lost(history: History) -> Iterator[Violation]:
    if not history.lost_replies:
        yield Violation("some_replies_were_lost", "no fault kept an answer from anyone")


def positions_have_no_gaps(history: History) -> Iterator[Violation]:
    for sight in history.sights:
        positions = [entry.position for entry in sight.entries or ()]
        if positions != list(range(sight.begin + 1, sight.begin + 1 + len(positions))):
            yield Violation("positions_have_no_gaps", f"{sight.by} saw {positions[:20]} after {sight.begin}")


def nothing_is_doubled(history: History) -> Iterator[Violation]:
    for sight in history.sights:
        for what, values in (("message", sight.contents), ("id", [entry.message_id for entry in sight.entries or ()])):
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                yield Violation("nothing_is_doubled", f"{sight.by} saw the {what} {twice[0]} twice")


def nothing_is_anothers(history: History) -> Iterator[Violation]:
    for sight in history.sights:
        mark = owner(sight.user, sight.session)
        texts = [*sight.contents, *(sight.metadata or {}).values(), sight.note or mark]
        if sight.title not in (None, sight.session):
            texts.append(sight.title or "")
        for text in texts:
            if not text.startswith(mark):
                yield Violation("nothing_is_anothers", f"{sight.by} saw {text!r} in {sight.user}/{sight.session}")
                break


def reads_are_fresh(history: History) -> Iterator[Violation]:
    """No read is older than what anyone had been told before it began."""
    for sights in _by_uid(history).values():
        watermark = Watermark([(sight.ended, sight.revision) for sight in sights])
        for sight in sights:
            told = watermark.before(sight.began)
            if told > sight.revision:
                yield Violation(
                    "reads_are_fresh",
                    f"{sight.by} saw revision {sight.revision} of {sight.session}, after somebody had seen {told}",
                )


def notes_are_ours(history: History) -> Iterator[Violation]:
    for sight in history.sights:
        written = history.notes.get((sight.user, sight.session), {})
        if sight.note and written.get(sight.note, 0) < sight.note_through:
            yield Violation(
                "notes_are_ours", f"{sight.by} saw {sight.note!r} through {sight.note_through}, which nobody wrote"
            )


def deleted_stays_deleted(history: History) -> Iterator[Violation]:
    lives = _by_uid(history)
    for write in history.writes:
        if write.method != "DeleteSession" or write.outcome is not Outcome.OK:
            continue
        for (user, session, uid), sights in lives.items():
            if (user, session) != (write.user, write.session) or min(s.ended for s in sights) >= write.began:
                continue
            for sight in sights:
                if sight.began > write.ended:
                    yield Violation("deleted_stays_deleted", f"{sight.by} saw {uid} after {write.key} deleted it")
                    break
    for (user, session, uid), sights in lives.items():
        first = min(sight.ended for sight in sights)
        for (other_user, other_session, other), others in lives.items():
            if (user, session) == (other_user, other_session) and uid != other:
                between = min((sight.ended for sight in others if sight.began > first), default=math.inf)
                back = [sight for sight in sights if sight.began > between]
                if back:
                    yield Violation("deleted_stays_deleted", f"{back[0].by} saw {uid} again, after {other}")


def what_exists_is_found(history: History) -> Iterator[Violation]:
    lives = _by_uid(history)
    for absence in history.absences:
        for (user, session, uid), sights in lives.items():
            if (user, session) == (absence.user, absence.session):
                before = any(sight.ended < absence.began for sight in sights)
                if before and any(sight.began > absence.ended for sight in sights):
                    yield Violation("what_exists_is_found", f"{absence.by} found no {session}, which was {uid}")


def one_write_wins_a_revision(history: History) -> Iterator[Violation]:
    winners: dict[tuple[str, int], Write] = {}
    for write in history.writes:
        if write.expected is None or write.outcome is not Outcome.OK or not write.moves:
            continue
        first = winners.setdefault((write.uid, write.expected), write)
        if first is not write:
            yield Violation(
                "one_write_wins_a_revision", f"{first.key} and {write.key} both wrote over revision {write.expected}"
            )
    for write in history.writes:
        if write.reason == "REVISION_MISMATCH" and write.told.get("revision") == str(write.expected):
            yield Violation("one_write_wins_a_revision", f"{write.key} was refused at the revision that it expected")


def a_repeat_gets_the_first_answer(history: History) -> Iterator[Violation]:
    for write in history.writes:
        for first, again in pairwise(write.answers):
            if first != again:
                yield Violation("a_repeat_gets_the_first_answer", f"{write.key} was told {first}, then {again}")


def a_question_is_consumed_once(history: History) -> Iterator[Violation]:
    claims: dict[str, list[Write]] = {}
    finished = _finished(history)
    for write in history.writes:
        if write.claimed and write.outcome is Outcome.OK:
            claims.setdefault(write.claimed, []).append(write)
    for question, claimed in claims.items():
        answered = [
            write
            for write in claimed
            if any(_status(end) in ("COMPLETED", "AWAITING_INPUT") for end in finished.get(write.key, ()))
        ]
        if len(answered) > 1:
            keys = ", ".join(write.key for write in answered)
            yield Violation("a_question_is_consumed_once", f"{keys} all answered {question}")


def what_has_ended_stays_so(history: History) -> Iterator[Violation]:
    """A run that ended, and a question that was settled, is seen in no other state from then on."""
    for what, lives, ends in (("run", history.runs, ENDED), ("question", history.tasks, SETTLED)):
        settled: dict[str, tuple[float, str]] = {}
        for life in sorted(lives, key=lambda life: life.ended):
            if life.state in ends and life.thing not in settled:
                settled[life.thing] = (life.ended, life.state)
        for life in lives:
            ended, state = settled.get(life.thing, (math.inf, life.state))
            if life.began > ended and life.state != state:
                yield Violation(
                    "what_has_ended_stays_so", f"{life.by} saw the {what} {life.thing} {life.state}, after {state}"
                )


def one_run_finishes_once(history: History) -> Iterator[Violation]:
    for key, ends in _finished(history).items():
        if len(ends) > 1:
            yield Violation("one_run_finishes_once", f"{', '.join(end.key for end in ends)} all finished {key}")


RULES: Sequence[Rule] = (
    no_failure_of_the_service,
    every_fault_met_traffic,
    some_replies_were_lost,
    nothing_is_anothers,
    positions_have_no_gaps,
    nothing_is_doubled,
    reads_are_fresh,
    notes_are_ours,
    deleted_stays_deleted,
    what_exists_is_found,
    one_write_wins_a_revision,
    a_repeat_gets_the_first_answer,
    a_question_is_consumed_once,
    what_has_ended_stays_so,
    one_run_finishes_once,
)


def _replays(history: History) -> Iterator[Violation]:
    """Every state was made by one write after another, and no lease was broken on the way."""
    certain = _certain_refusals(history)
    replayed: dict[tuple[str, str], list[Replayed]] = {}
    for (user, session, uid), sights in _by_uid(history).items():
        one = Replay(history, user=user, session=session, uid=uid, certain=certain).run()
        replayed.setdefault((user, session), []).append(one)
        if one.problem:
            # What follows from states would be wrong of these.
            yield Violation("every_state_is_explained", one.problem)
            continue
        yield from _broken_leases(history, user, session, one)
        yield from _changed_messages(sights, one)
        yield from _old_notes(sights, one)
    for sight in history.sights:
        lives = replayed.get((sight.user, sight.session), ())
        if sight.uid is None and not _is_of(history, sight, lives) and not _is_unseen(history, sight, lives, certain):
            yield Violation(
                "pages_are_whole",
                f"{sight.by} saw {list(sight.contents[-2:])} at revision {sight.revision} of {sight.session}",
            )


def _is_of(history: History, sight: Sight, lives: Sequence[Replayed]) -> bool:
    """Whether a sight that names no uid fits one; what could not be replayed is told already."""
    for life in lives:
        if sight.revision >= len(life.states):
            if life.problem:
                return True
        elif sight.began <= life.told_by(sight.revision + 1) and not disagreement(
            history, sight, life.states[sight.revision]
        ):
            return True
    return False


def _is_unseen(history: History, sight: Sight, lives: Sequence[Replayed], certain: frozenset[str]) -> bool:
    """Whether it may be all that anyone saw of a uid, or of its last revisions: of writes whose answers were lost."""
    uids = [life.uid for life in lives if sight.revision >= len(life.states)]
    return any(
        not Replay(history, user=sight.user, session=sight.session, uid=uid, certain=certain, also=[sight])
        .run()
        .problem
        for uid in (*uids, "")
    )


def _changed_messages(sights: Sequence[Sight], life: Replayed) -> Iterator[Violation]:
    """A message keeps its id, and its time for as long as it stays; an overwrite may take it away and back."""
    born: list[dict[str, int]] = [{}]
    for revision, state in enumerate(life.states[1:], start=1):
        born.append({content: born[-1].get(content, revision) for content in state.messages})
    known: dict[tuple[str, int], tuple[str, int]] = {}
    for sight in sights:
        if sight.revision < len(born):
            for entry in sight.entries or ():
                name = (entry.content, born[sight.revision].get(entry.content, 0))
                first = known.setdefault(name, (entry.message_id, entry.create_time_ns))
                if first != (entry.message_id, entry.create_time_ns):
                    yield Violation(
                        "messages_keep_id_and_time", f"{sight.by} saw another id or time of {entry.content}"
                    )


def _old_notes(sights: Sequence[Sight], life: Replayed) -> Iterator[Violation]:
    """A note moves no revision; it is followed by its position, which goes back only where messages do."""
    stretch = [0]
    for before, after in pairwise(life.states):
        stretch.append(stretch[-1] + (after.messages[: len(before.messages)] != before.messages))
    noted: dict[int, list[Sight]] = {}
    for sight in sights:
        if sight.note is not None and sight.revision < len(stretch):
            noted.setdefault(stretch[sight.revision], []).append(sight)
    for together in noted.values():
        # One that goes beyond the last message says no more than one that ends there.
        watermark = Watermark([(sight.ended, _note_through(sight)) for sight in together])
        for sight in together:
            told = watermark.before(sight.began)
            if told > _note_through(sight):
                yield Violation(
                    "notes_are_fresh",
                    f"{sight.by} saw a note through {sight.note_through}, after somebody had seen one through {told}",
                )


def _note_through(sight: Sight) -> int:
    return min(sight.note_through, sight.count or 0)


def _broken_leases(history: History, user: str, session: str, life: Replayed) -> Iterator[Violation]:
    """A run that its holder kept alive is ended by nobody else, but for one that takes its place, after its grace."""
    begins = {write.key: write for write in history.writes if isinstance(write.effect, Begin)}
    taking = [
        write
        for write in begins.values()
        if (write.user, write.session) == (user, session) and _conflict(write) in ("INTERRUPT", "ROLLBACK")
    ]
    for revision, (before, step) in enumerate(zip(life.states, life.steps, strict=False), start=1):
        begin = begins.get(before.active)
        by_holder = step.write is not None and isinstance(step.write.effect, Finish)
        if begin is None or step.state.active == before.active or by_holder:
            continue
        ended = life.told_by(revision)
        kept = max([begin.began, *(began for began in history.renewals.get(begin.key, ()) if began < ended)])
        asked = [write.began for write in taking if write.key != begin.key and write.ended > begin.began]
        if ended < min([kept + begin.lease_s, *(began + GRACE_S for began in asked)]):
            yield Violation(
                "a_lease_holds",
                f"the run of {begin.key} was ended {ended - kept:.2f} s into its lease of {begin.lease_s:g} s",
            )


def _certain_refusals(history: History) -> frozenset[str]:
    """Refused writes without effect: no try of theirs, and none that the transport repeated, went unanswered."""
    return frozenset(
        write.key
        for write in history.writes
        if write.outcome is Outcome.REFUSED
        and not write.unsure
        and not any(
            fault.began <= write.ended and write.began <= fault.ended + FAULT_ECHO_S for fault in history.faults
        )
    )


def _finished(history: History) -> dict[str, list[Write]]:
    """By the key of a BeginRun, the FinishRuns of it that were acknowledged."""
    finished: dict[str, list[Write]] = {}
    for write in history.writes:
        if isinstance(write.effect, Finish) and write.outcome is Outcome.OK:
            finished.setdefault(write.effect.run, []).append(write)
    return finished


def _conflict(write: Write) -> str:
    return write.effect.conflict if isinstance(write.effect, Begin) else ""


def _status(write: Write) -> str:
    return write.effect.status if isinstance(write.effect, Finish) else ""


def _by_uid(history: History) -> dict[tuple[str, str, str], list[Sight]]:
    lives: dict[tuple[str, str, str], list[Sight]] = {}
    for sight in history.sights:
        if sight.uid is not None:
            lives.setdefault((sight.user, sight.session, sight.uid), []).append(sight)
    return lives
