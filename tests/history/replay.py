"""Finds an order of the writes that explains every state that was seen of a session."""

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.history.model import EndByService, State
from tests.history.record import History, Outcome, Sight, Write

STEPS_AT_MOST = 20_000


@dataclass(frozen=True, slots=True)
class Step:
    """The write that made a revision, and the state that it left. None: the service ended a run."""

    write: Write | None
    ended_run: str
    state: State


@dataclass(slots=True)
class Replayed:
    """The states by revision, as far as they could be explained; `problem` is "" where all were."""

    uid: str
    states: list[State]
    told: Sequence[float]
    """By revision, when someone had first been told of it, or of a later one."""
    steps: list[Step] = field(default_factory=list)
    problem: str = ""

    def told_by(self, revision: int) -> float:
        """A moment by which the revision had been made."""
        return self.told[revision] if revision < len(self.told) else math.inf


class Replay:
    """The life of one session under one uid."""

    def __init__(
        self,
        history: History,
        *,
        user: str,
        session: str,
        uid: str,
        certain: frozenset[str],
        also: Sequence[Sight] = (),
    ):
        """`certain` are the keys of refused writes that are known to have had no effect; `also` may be of this uid."""
        self._history = history
        self._uid = uid
        self._session = session
        self._sights: dict[int, list[Sight]] = {}
        own = (sight for sight in history.sights if sight.uid == uid and (sight.user, sight.session) == (user, session))
        for sight in (*own, *also):
            self._sights.setdefault(sight.revision, []).append(sight)
        self._last = max(self._sights, default=0)
        known = Watermark([(sight.ended, sight.revision) for sights in self._sights.values() for sight in sights])
        self._required: list[Write] = []
        self._possible: list[Write] = []
        for write in history.writes:
            if (write.user, write.session) != (user, session) or write.effect is None:
                continue
            if write.outcome is Outcome.OK and write.uid:
                if write.uid == uid and write.moves:
                    self._required.append(write)
            elif write.outcome is not Outcome.REFUSED or write.key not in certain:
                self._possible.append(write)
        self._after = {write.key: known.before(write.began) for write in (*self._required, *self._possible)}

    def run(self) -> Replayed:
        """Goes forward while some write fits, and back to the last choice where none does."""
        path: list[Step] = []
        choices: list[Iterator[Step]] = [self._steps(1, State(), frozenset())]
        used: list[frozenset[str]] = [frozenset()]
        best: list[Step] = []
        problem = "too many orders of the writes to try them all; as far as was seen, "
        for _ in range(STEPS_AT_MOST):
            if len(path) == self._last:
                return self._replayed(path)
            step = next(choices[-1], None)
            if step is not None:
                path.append(step)
                used.append(used[-1] | {step.write.key} if step.write else used[-1])
                choices.append(self._steps(len(path) + 1, step.state, used[-1]))
                best = max(best, path, key=len)[:]
            elif path:
                path.pop()
                used.pop()
                choices.pop()
            else:
                problem = ""
                break
        return self._replayed(best, problem + self._problem(best))

    def _replayed(self, path: Sequence[Step], problem: str = "") -> Replayed:
        states = [State(), *(step.state for step in path)]
        return Replayed(self._uid, states, self._told(), list(path), problem)

    def _told(self) -> Sequence[float]:
        told = [math.inf] * (self._last + 1)
        for revision in range(self._last, -1, -1):
            own = min((sight.ended for sight in self._sights.get(revision, ())), default=math.inf)
            told[revision] = min(own, told[revision + 1] if revision < self._last else math.inf)
        return told

    def _steps(self, revision: int, state: State, used: frozenset[str]) -> Iterator[Step]:
        """What may have made this revision, the likeliest first."""
        if revision > self._last:
            return
        for write in self._candidates(revision, used):
            if write.effect is None or not (revision > 1 or write.effect.creates):
                continue
            if write.expected is not None and write.expected != revision - 1:
                continue
            for left in write.effect.results(state):
                if not _misplaced(write, left) and self._fits(revision, left):
                    yield Step(write, "", left)
        if state.active:
            for left in EndByService(state.active, self._history.said.get(state.active, ())).results(state):
                if self._fits(revision, left):
                    yield Step(None, state.active, left)

    def _candidates(self, revision: int, used: frozenset[str]) -> Sequence[Write]:
        waiting = [write for write in self._required if write.key not in used and revision <= write.revision]
        overdue = [write for write in waiting if write.revision == revision]
        if overdue:
            # Its answer showed this revision: it is this one, or was an earlier one.
            return [write for write in overdue if len(overdue) == 1 and self._after[write.key] < revision]
        late = [write for write in (*waiting, *self._possible) if self._after[write.key] < revision]
        return [write for write in late if write.key not in used]

    def _fits(self, revision: int, state: State) -> bool:
        return all(not disagreement(self._history, sight, state) for sight in self._sights.get(revision, ()))

    def _problem(self, path: Sequence[Step]) -> str:
        revision = len(path) + 1
        state = path[-1].state if path else State()
        used = frozenset(step.write.key for step in path if step.write)
        tried = ", ".join(f"{write.key} {write.effect}" for write in self._candidates(revision, used)) or "none"
        seen = "; ".join(dict.fromkeys(_shown(sight) for sight in self._sights.get(revision, ()))) or "nothing"
        wrong = (
            _misplaced(write, left) or disagreement(self._history, sight, left)
            for write in self._candidates(revision, used)
            for left in (write.effect.results(state) if write.effect else ())
            for sight in self._sights.get(revision, ())
        )
        because = [text for text in dict.fromkeys(wrong) if text]
        return (
            f"no write explains revision {revision} of {self._session} ({self._uid}): could be {tried}; seen: {seen}; "
            f"before: {len(state.messages)} messages, the last {list(state.messages[-2:])}, {_rest(state)}"
            f"{'; but ' if because else ''}{'; or '.join(because)}"
        )


class Watermark:
    """The highest number that anyone had been told by a moment."""

    def __init__(self, told: Sequence[tuple[float, int]]):
        """`told` is when, and the number."""
        self._times: list[float] = []
        self._highest: list[int] = []
        for moment, number in sorted(told):
            self._times.append(moment)
            self._highest.append(max(number, self._highest[-1] if self._highest else 0))

    def before(self, moment: float) -> int:
        """0 where nobody had been told any."""
        place = bisect.bisect_left(self._times, moment)
        return self._highest[place - 1] if place else 0


def disagreement(history: History, sight: Sight, state: State) -> str:
    """What the sight shows that is not in the state; "" where it could be a sight of it."""
    if sight.count is not None and sight.count != len(state.messages):
        return f"{sight.by} saw {sight.count} messages, where there are {len(state.messages)}"
    if sight.entries is not None:
        wanted = state.messages[sight.begin : sight.end]
        if sight.contents != wanted:
            lost = [content for content in wanted if content not in sight.contents]
            strange = [content for content in sight.contents if content not in wanted]
            return f"{sight.by} saw other messages: without {lost[:3]}, with {strange[:3]}"
    if sight.metadata is not None and sight.metadata != state.metadata:
        return f"{sight.by} saw other metadata: {_difference(sight.metadata, state.metadata)}"
    if sight.title is not None and sight.title != (state.title or sight.session):
        return f"{sight.by} saw the title {sight.title!r}, where it is {state.title!r}"
    if sight.active_run is not None:
        active = history.begun_as.get(sight.active_run, state.active) if sight.active_run else ""
        if bool(sight.active_run) != bool(state.active) or active != state.active:
            return f"{sight.by} saw the run {active or 'none'} hold it, where {state.active or 'none'} does"
    if sight.pending_task is not None:
        pending = history.asked_as.get(sight.pending_task, state.pending) if sight.pending_task else ""
        if bool(sight.pending_task) != bool(state.pending) or pending != state.pending:
            return f"{sight.by} saw the question {pending or 'none'} wait, where {state.pending or 'none'} does"
    return ""


def _misplaced(write: Write, left: State) -> str:
    """Whether the answer told another position of what the write added; "" where it did not."""
    if not write.position or write.effect is None:
        return ""
    there = left.messages[write.position - 1 : write.position]
    return "" if there == (write.effect.first,) else f"{write.key} was told the position {write.position}"


def _difference(seen: Mapping[str, str], there: Mapping[str, str]) -> str:
    keys = sorted(key for key in {*seen, *there} if seen.get(key) != there.get(key))
    return ", ".join(f"{key}={seen.get(key)!r} for {there.get(key)!r}" for key in keys[:3])


def _rest(state: State) -> str:
    told = {"run": state.active, "claimed": state.claimed, "pending": state.pending, "turn": state.turn}
    return ", ".join(f"{name} {value}" for name, value in told.items() if value) or "no run and no question"


def _shown(sight: Sight) -> str:
    shown = [f"{sight.count} messages"] if sight.count is not None else []
    if sight.entries is not None:
        shown.append(f"…{list(sight.contents[-2:])}")
    if sight.active_run is not None:
        shown.append(f"run {sight.active_run or 'none'}")
    return f"{sight.by}: {' '.join(shown)}"
