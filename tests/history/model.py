"""What a session is, as far as the checker follows it, and what each write makes of it.

Every text that a client writes is unique, so a message is its content, and a question is the content of the
message that puts it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace


def owner(user: str, session: str) -> str:
    """What every text that is written to a session begins with."""
    return f"{user}|{session}|"


@dataclass(frozen=True, slots=True)
class State:
    """A session between two writes. "" stands for none."""

    messages: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    active: str = ""
    """The key of the BeginRun whose run holds the session."""
    claimed: str = ""
    """The question that this run answers."""
    pending: str = ""
    """The question that waits for the user."""
    turn: str = ""
    """The message that began the last run."""

    def cut(self, count: int) -> "State":
        """With the first `count` messages alone; a question that waited among the others is gone."""
        kept = self.messages[:count]
        return replace(self, messages=kept, pending=self.pending if self.pending in kept else "")

    def merged(self, metadata: Mapping[str, str | None]) -> Mapping[str, str]:
        joined = {**self.metadata, **metadata}
        return {key: value for key, value in joined.items() if value is not None}


class Effect(ABC):
    """What one write does, all or nothing."""

    creates = False
    """Whether the session comes into being where there is none."""

    @property
    def first(self) -> str:
        """The first message that it adds; "" where it adds none."""
        return ""

    @abstractmethod
    def results(self, state: State) -> Iterator[State]:
        """The states that it may leave; none where it had to be refused."""


@dataclass(frozen=True, slots=True)
class Append(Effect):
    contents: tuple[str, ...]
    creates = True

    @property
    def first(self) -> str:
        return self.contents[0]

    def results(self, state: State) -> Iterator[State]:
        if not state.active:
            yield replace(state, messages=state.messages + self.contents)


@dataclass(frozen=True, slots=True)
class Save(Effect):
    contents: tuple[str, ...]
    metadata: Mapping[str, str | None]
    creates = True

    def results(self, state: State) -> Iterator[State]:
        if not state.active:
            pending = state.pending if state.pending in self.contents else ""
            yield replace(state, messages=self.contents, metadata=state.merged(self.metadata), pending=pending)


@dataclass(frozen=True, slots=True)
class Update(Effect):
    metadata: Mapping[str, str | None]
    title: str

    def results(self, state: State) -> Iterator[State]:
        yield replace(state, metadata=state.merged(self.metadata), title=self.title or state.title)


@dataclass(frozen=True, slots=True)
class Truncate(Effect):
    after: int

    def results(self, state: State) -> Iterator[State]:
        if not state.active and len(state.messages) > self.after:
            yield state.cut(self.after)


@dataclass(frozen=True, slots=True)
class CancelQuestion(Effect):
    question: str

    def results(self, state: State) -> Iterator[State]:
        if state.pending == self.question:
            yield replace(state, pending="")


@dataclass(frozen=True, slots=True)
class EndByService(Effect):
    """A run that is ended without its holder; `said` is what its log has of the reply, piece by piece."""

    run: str
    said: tuple[str, ...] = ()

    def results(self, state: State) -> Iterator[State]:
        if state.active != self.run:
            return
        ended = replace(state, active="", claimed="", pending=state.claimed or state.pending)
        yield ended
        for count in range(1, len(self.said) + 1):
            yield replace(ended, messages=(*ended.messages, "".join(self.said[:count])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Effect):
    """`conflict` and `policy` are the names of the two policies; `over` is how an old run may be ended."""

    run: str
    content: str
    conflict: str
    policy: str
    answers: str = ""
    title: str = ""
    retries: str = ""
    """The message of the run that is tried again."""
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """What each run, by key, may have in its log: INTERRUPT and ROLLBACK may end one."""
    creates = True

    @property
    def first(self) -> str:
        return self.content

    def results(self, state: State) -> Iterator[State]:
        for free in self._freed(state):
            if self.retries:
                yield from self._anew(free)
            else:
                yield from self._begun(free)

    def _freed(self, state: State) -> Iterator[State]:
        if self.conflict not in ("INTERRUPT", "ROLLBACK"):
            if not state.active:
                yield state
            return
        ended = [state]
        if state.active:
            ended = list(EndByService(state.active, self.said.get(state.active, ())).results(state))
        for free in ended:
            if not state.active or self.conflict == "INTERRUPT":
                yield free
            if self.conflict == "ROLLBACK" and free.turn in free.messages:
                yield free.cut(free.messages.index(free.turn))

    def _begun(self, state: State) -> Iterator[State]:
        begun = replace(
            state,
            messages=(*state.messages, self.content),
            title=state.title or self.title,
            active=self.run,
            claimed="",
            pending="",
            turn=self.content,
        )
        if self.answers:
            if state.pending == self.answers:
                yield replace(begun, claimed=self.answers)
        elif not state.pending or self.policy == "REPLACE":
            yield begun
        elif self.policy == "ANSWER":
            yield replace(begun, claimed=state.pending)
            if self.conflict != "REJECT":
                # It may have been opened while the message waited its turn.
                yield begun

    def _anew(self, state: State) -> Iterator[State]:
        if state.turn != self.retries or state.turn not in state.messages:
            return
        free = state.cut(state.messages.index(state.turn) + 1)
        yield replace(
            free, title=free.title or self.title, active=self.run, claimed=free.pending, pending="", turn=state.turn
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Effect):
    run: str
    status: str
    reply: str
    """"": nothing was said."""
    metadata: Mapping[str, str | None]

    @property
    def first(self) -> str:
        return self.reply

    def results(self, state: State) -> Iterator[State]:
        if state.active != self.run:
            return
        if self.status == "AWAITING_INPUT":
            pending = self.reply
        else:
            pending = state.claimed if self.status in ("FAILED", "CANCELLED") else ""
        yield replace(
            state,
            messages=(*state.messages, self.reply) if self.reply else state.messages,
            metadata=state.merged(self.metadata),
            active="",
            claimed="",
            pending=pending,
        )
