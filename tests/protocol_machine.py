"""Which events could anybody send to a run? A machine that sends them; what answers is the test's."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from tests.protocol_script import Sender, claim, new_run

_KINDS = (
    "opens",
    "reports",
    "triggers",
    "acknowledges",
    "completes",
    "declines",
    "pins",
    "finishes",
    "ends",
    "publishes",
)
_ONWARDS = ("opens", "reports", "reports", "triggers", "completes", "completes")  # what a healthy driver sends
_HEADS = st.dictionaries(st.sampled_from(["centroids", "weights", "criteria"]), st.integers(0, 3), min_size=1)
_SOUND_HEADS = _HEADS.map(lambda heads: {name: max(1, count) for name, count in heads.items()})


class EventMachine(RuleBasedStateMachine):
    """Sends events of several attempts to one run: legal, illegal, stale, duplicated, late.

    `family` keeps the attempt ids of several runs of one store apart; `state` is the run as it answered last.
    """

    family = 0

    def __init__(self) -> None:
        super().__init__()
        self.state: RunState = new_run()
        self.claims = 0
        self.senders: list[Sender] = []
        self.heard: list[Event] = []

    @abstractmethod
    def start(self, max_epochs: int | None) -> RunState:
        """Make the run."""

    @abstractmethod
    def answer(self, event: Event) -> RunState | None:
        """Return the state after an event, None when it is refused."""

    @initialize(max_epochs=st.none() | st.integers(1, 3))
    def begin(self, max_epochs: int | None) -> None:
        self.state = self.start(max_epochs)

    @rule(data=st.data(), takeover=st.booleans())
    def new_attempt_claims(self, data: st.DataObject, *, takeover: bool) -> None:
        self.claims += 1
        gone = data.draw(st.none() | st.integers(1, self.claims))
        if self.send(claim(self.claims, takeover=takeover, gone=gone, family=self.family)):
            self.senders.append(self.sender(self.claims, self.state.fencing_token))

    @precondition(lambda self: self.senders)
    @rule(data=st.data())
    def live_attempt_goes_on(self, data: st.DataObject) -> None:
        self.send(self.an_event(data, self.senders[-1], data.draw(st.sampled_from(_ONWARDS)), likely=True))

    @precondition(lambda self: self.senders)
    @rule(data=st.data(), kind=st.sampled_from(_KINDS))
    def live_attempt_says_anything(self, data: st.DataObject, kind: str) -> None:
        self.send(self.an_event(data, self.senders[-1], kind))

    @precondition(lambda self: self.senders)
    @rule(data=st.data(), kind=st.sampled_from(_KINDS))
    def somebody_else_says_anything(self, data: st.DataObject, kind: str) -> None:
        known = [*self.senders[:-1], self.sender(self.senders[-1].number, self.senders[-1].token + 1)]
        known.append(self.sender(99, 1))
        self.send(self.an_event(data, data.draw(st.sampled_from(known)), kind))

    @precondition(lambda self: self.heard)
    @rule(data=st.data())
    def old_event_arrives_again(self, data: st.DataObject) -> None:
        self.send(data.draw(st.sampled_from(self.heard)))

    def teardown(self) -> None:
        """Whatever happened, a new attempt brings the run to its end, by one more epoch at most."""
        if self.state.status is RunStatus.FINISHED:
            return
        self.claims += 1
        assert self.send(claim(self.claims, takeover=True, family=self.family))
        sender = self.sender(self.claims, self.state.fencing_token)
        if self.state.status is RunStatus.RUNNING:
            epoch = self.state.last_durable_epoch + 1
            assert self.send(sender.opens(epoch))
            assert self.send(sender.reports(epoch, {"centroids": {0: 0}}))
            assert self.send(sender.triggers(epoch))
            assert self.send(sender.completes(self.state.last_checkpoint_id))
            assert epoch == self.state.last_durable_epoch
        assert self.send(sender.publishes())

    def sender(self, number: int, token: int) -> Sender:
        """Return an attempt of this run."""
        return Sender(number, token, self.family)

    def send(self, event: Event) -> bool:
        """Send an event; tell whether it was accepted."""
        after = self.answer(event)
        if after is None:
            return False
        self.state = after
        self.heard.append(event)
        return True

    def an_event(self, data: st.DataObject, sender: Sender, kind: str, *, likely: bool = False) -> Event:
        """Return an event of a kind; a likely one fits the run as it is."""
        odd = st.just(0) if likely else st.sampled_from([0, 0, 0, 1, -1, -2])
        epoch = self.state.last_epoch + data.draw(odd)
        checkpoint_id = self.state.last_checkpoint_id + data.draw(odd)
        streams = st.sampled_from(["x", "y"])
        make: dict[str, Callable[[], Event]] = {
            "opens": lambda: sender.opens(epoch + 1, **data.draw(_HEADS if not likely else _SOUND_HEADS)),
            "reports": lambda: sender.reports(epoch, self.some_reports(data, likely=likely)),
            "triggers": lambda: sender.triggers(epoch, **({} if likely else data.draw(_HEADS))),
            "acknowledges": lambda: sender.acknowledges(checkpoint_id, centroids=(data.draw(odd),)),
            "completes": lambda: self.a_manifest(data, sender, checkpoint_id),
            "declines": lambda: sender.declines(checkpoint_id),
            "pins": lambda: sender.pins(data.draw(streams), data.draw(streams)),
            "finishes": lambda: sender.finishes(data.draw(streams)),
            "ends": lambda: sender.ends(data.draw(st.sampled_from(AttemptOutcome)), data.draw(st.none() | streams)),
            "publishes": sender.publishes,
        }
        return make[kind]()

    def a_manifest(self, data: st.DataObject, sender: Sender, checkpoint_id: int) -> Event:
        """Return a manifest with every acknowledgement that its checkpoint still wants."""
        pending = next((known for known in self.state.pending if known.checkpoint_id == checkpoint_id), None)
        wanted = {known.name: tuple(range(known.expected)) for known in pending.participants} if pending else {}
        manifest = sender.completes(checkpoint_id, sha256=data.draw(st.sampled_from("ab")) * 64)
        return dataclasses.replace(manifest, acknowledgements=wanted)

    def some_reports(self, data: st.DataObject, *, likely: bool) -> dict[str, dict[int, int]]:
        """Return reports of the last epoch: of all its subtasks, or any, also of some that are not there."""
        if likely and self.state.epochs:
            heads = self.state.epochs[-1].heads
            return {
                head.name: {
                    index: data.draw(st.integers(0, 2)) if known is None else known
                    for index, known in enumerate(head.values)
                }
                for head in heads
            }
        counts = st.dictionaries(st.integers(-1, 3), st.integers(-1, 2), max_size=3)
        return data.draw(st.dictionaries(st.sampled_from(["centroids", "weights", "criteria", "x"]), counts))
