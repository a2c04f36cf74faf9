"""Which events could anybody send to a run? A machine that sends them; what answers is the test's.

Hypothesis chooses what happens, how far the run is driven before it, and a seed; the seed chooses the rest. So an
example costs little and shrinks to the few rules that matter, with the events that they sent in `heard`.
"""

from __future__ import annotations

import dataclasses
import random
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iteration_lib.protocol import Event, RunState
from iteration_lib.protocol.event import CheckpointRequested, Committable, FinishedPart, RunResumed, StopRequested
from iteration_lib.protocol.policy import CheckpointPolicy
from iteration_lib.protocol.state import NO_EPOCH, CheckpointState, FailedOperator
from iteration_lib.protocol.status import (
    AttemptOutcome,
    CheckpointFailure,
    CheckpointStatus,
    EpochStatus,
    RunStatus,
    StopKind,
    UnalignedBy,
)
from tests.protocol_script import (
    Sender,
    aborts,
    asks,
    claim,
    deletes,
    discards,
    keeps,
    new_run,
    operator,
    part,
    prepared,
    releases,
    resumes,
    stops,
)

LONG_SECONDS = 3600.0  # a pause or a lease that no real clock sees the end of during a test

_STEPS = st.integers(0, 5)
_SEEDS = st.integers(0, 2**32 - 1)
_KINDS = (
    "opens",
    "opens if ready",
    "reports",
    "switches",
    "marks",
    "triggers",
    "triggers last",
    "acknowledges",
    "completes",
    "commits",
    "declines",
    "pins",
    "finishes",
    "changes",
    "notifies",
    "ends",
    "publishes",
)
_BESIDE = ("switches", "marks", "marks", "notifies", "commits", "triggers last", "pins", "finishes", "ends")
_RECORDS = (*[2] * 20, *[1] * 10, 0)  # a head that feeds back nothing ends the run
_HEADS = ("centroids", "weights", "criteria")
_STREAMS = ("scaled", "y")
# What an operator of the machine's iteration is computed from, in running order: the narrow and the wide inputs.
_INPUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pairs": ((), ()),
    "sums": (("pairs",), ()),
    "words": ((), ("scaled",)),
    "means": ((), ("sums",)),
}
_SINKS: tuple[Mapping[str, bool], ...] = ({}, {}, {"rows": True}, {"rows": True, "model": False})
_TOTALS = {"scaled": 4, "pairs": 4, "sums": 4, "words": 4, "means": 1}


def definition(sinks: Mapping[str, bool]) -> dict[str, object]:
    """Return the definition that a run begins with: what is computed from what, as the machine has it."""
    operators = {name: operator(name, *narrow, *wide) for name, (narrow, wide) in _INPUTS.items()}
    streams = {name: operator(name) for name in _STREAMS}
    return {"iteration": "km", "operators": {**streams, **operators}, "sinks": dict(sinks)}


def chances(seed: int) -> random.Random:
    """Return what chooses the same for the same seed."""
    return random.Random(seed)  # noqa: S311  # nothing is kept secret here


class EventMachine(RuleBasedStateMachine):
    """Sends events of several attempts and persons to one run: legal, illegal, stale, duplicated, late.

    `family` keeps the attempt ids of several runs of one store apart; `state` is the run as it answered last. An
    attempt takes any of the leases.
    """

    family = 0
    leases_seconds: tuple[float, ...] = (LONG_SECONDS,)

    def __init__(self) -> None:
        super().__init__()
        self.state: RunState = new_run()
        self.chance = chances(0)
        self.claims = 0
        self.requests = 0
        self.stops = 0
        self.senders: list[Sender] = []
        self.heard: list[Event] = []
        self.completed: dict[int, CheckpointState] = {}
        self.discarded: set[int] = set()

    @abstractmethod
    def start(self, max_epochs: int | None, origin_epoch: int, sinks: Mapping[str, bool]) -> RunState:
        """Make the run: with an origin's epoch, a branch that begins behind it; these outputs go to sinks."""

    @abstractmethod
    def answer(self, event: Event) -> RunState | None:
        """Return the state after an event, None when it is refused."""

    @abstractmethod
    def published(self, *, after_epoch: int) -> Collection[str]:
        """Return the outputs that are published of later epochs."""

    @initialize(
        max_epochs=st.sampled_from([None, None, None, 2, 5]),
        origin_epoch=st.sampled_from([NO_EPOCH, NO_EPOCH, NO_EPOCH, 0, 1]),
        sinks=st.sampled_from(_SINKS),
        seed=_SEEDS,
    )
    def begin(self, max_epochs: int | None, origin_epoch: int, sinks: Mapping[str, bool], seed: int) -> None:
        self.chance = chances(seed)
        self.state = self.start(max_epochs, origin_epoch, sinks)
        self.claim_run()

    @rule(steps=_STEPS, seed=_SEEDS)
    def attempt_goes_on(self, steps: int, seed: int) -> None:
        self.go_on(steps + 2, seed)

    @rule(steps=_STEPS, seed=_SEEDS)
    def attempt_does_something_beside(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        self.send(self.an_event(self.senders[-1], self.chance.choice(_BESIDE), likely=True))

    @rule(steps=_STEPS, seed=_SEEDS)
    def attempt_leaves_edges(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        for kind in ("opens if ready", "switches", "marks", "marks", "marks"):
            self.send(self.an_event(self.senders[-1], kind, likely=True))

    @rule(steps=_STEPS, seed=_SEEDS)
    def checkpoint_ends_that_may_hold_an_epoch(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        for kind in ("reports", "triggers", "opens if ready", "reports"):
            self.send(self.an_event(self.senders[-1], kind, likely=True))
        how = self.chance.choice(["declines", "declines", "declines", "abort", "ends", "completes", "opens if ready"])
        if how != "abort":
            self.send(self.an_event(self.senders[-1], how, likely=True))
        if how in ("abort", "ends"):
            self.send(aborts(max(1, self.state.last_checkpoint_id)))

    @rule(steps=_STEPS, seed=_SEEDS)
    def attempt_says_anything(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        for kind in self.chance.choices(_KINDS, k=4):
            self.send(self.an_event(self.senders[-1], kind))

    @rule(steps=_STEPS, seed=_SEEDS)
    def another_attempt_claims(self, steps: int, seed: int) -> None:
        """It may find another definition, and then says so before it does anything."""
        self.go_on(steps, seed)
        gone = self.chance.choice([None, None, self.claims, 1])
        sender = self.claim_run(gone=gone, takeover=self.chance.random() < 0.5)
        if sender is not None and self.chance.random() < 0.3:
            self.send(self.an_event(sender, "changes"))

    @rule(steps=_STEPS, seed=_SEEDS)
    def another_attempt_falls_back(self, steps: int, seed: int) -> None:
        """Nobody discards what it may fall back to."""
        self.go_on(steps + 6, seed)
        sender = self.claim_run(takeover=True)
        newest = self.state.completed.checkpoint_id if self.state.completed is not None else 0
        older = [known for number, known in self.completed.items() if number < newest and number not in self.discarded]
        if sender is None or not older:
            return
        chosen = dataclasses.replace(self.chance.choice(older), status=CheckpointStatus.SUBSUMED)
        if self.send(sender.falls_back(chosen, published=self.published(after_epoch=chosen.epoch))):
            self.discarded.update(number for number in self.completed if number > chosen.checkpoint_id)

    @rule(steps=_STEPS, seed=_SEEDS)
    def somebody_else_says_anything(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        last = self.senders[-1]
        known = [*self.senders[:-1], self.sender(last.number, last.token + 1), self.sender(99, last.token)]
        self.send(self.an_event(self.chance.choice(known), self.chance.choice(_KINDS)))

    @rule(steps=_STEPS, seed=_SEEDS)
    def person_asks_for_a_checkpoint(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        self.requests += not self.requests or self.chance.random() < 0.7
        self.send(asks(self.requests, self.family))

    @rule(steps=_STEPS, seed=_SEEDS)
    def person_stops_the_run_or_lets_it_go_on(self, steps: int, seed: int) -> None:
        """Somebody who resumes it may mean an older stop."""
        self.go_on(steps, seed)
        chance = self.chance
        if self.stops and chance.random() < 0.5:
            self.send(resumes(self.stops - chance.choice([0, 0, 0, 1]), self.family))
            return
        self.stops += not self.stops or chance.random() < 0.7
        kind = chance.choice([StopKind.STOP, StopKind.STOP, StopKind.DRAIN])
        self.send(stops(self.stops, kind, gone=chance.choice([None, None, self.claims]), family=self.family))

    @rule(steps=_STEPS, seed=_SEEDS)
    def person_aborts_a_checkpoint(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        self.send(aborts(self.state.last_checkpoint_id + self.chance.choice([-1, 0, 0, 0, 1, 2])))

    @rule(steps=_STEPS, seed=_SEEDS)
    def somebody_discards_checkpoints(self, steps: int, seed: int) -> None:
        """Mostly older ones, which may go unless something needs them."""
        self.go_on(steps + 6, seed)
        last = self.state.last_checkpoint_id
        older = sorted(self.completed)[:-1]
        gone = [known for known in self.chance.choice([older, older, range(last + 2)]) if self.chance.random() < 0.6]
        if self.send(discards(*gone, sender=self.chance.choice([None, None, self.senders[-1], *self.senders]))):
            self.discarded.update(gone)

    @rule(steps=_STEPS, seed=_SEEDS)
    def person_pins_a_checkpoint_or_releases_it(self, steps: int, seed: int) -> None:
        """What it was found as is what it is: nobody else writes beside it."""
        self.go_on(steps, seed)
        known = self.chance.choice([*self.completed, self.state.last_checkpoint_id])
        if self.chance.random() < 0.3:
            self.send(releases(known))
        elif known in self.discarded:
            self.send(keeps(known, CheckpointStatus.DISCARDED))
        elif known in self.completed:
            is_newest = self.state.completed is not None and self.state.completed.checkpoint_id == known
            self.send(keeps(known, CheckpointStatus.COMPLETED if is_newest else CheckpointStatus.SUBSUMED))
        else:
            self.send(keeps(known, CheckpointStatus.PENDING))

    @rule(steps=_STEPS, seed=_SEEDS, is_meant=st.sampled_from([False, False, False, True]))
    def person_deletes_the_run(self, steps: int, seed: int, is_meant: bool) -> None:  # noqa: FBT001 - drawn
        """Mostly somebody drives it."""
        self.go_on(steps, seed)
        live = self.state.attempt is not None
        if live or is_meant:
            self.send(deletes(gone=self.claims if is_meant else None, family=self.family))

    @rule(steps=_STEPS, seed=_SEEDS)
    def old_event_arrives_again(self, steps: int, seed: int) -> None:
        self.go_on(steps, seed)
        self.send(self.chance.choice(self.heard))

    def teardown(self) -> None:
        """Whatever happened, a new attempt brings the run to its end, by one more epoch at most."""
        if self.state.status in (RunStatus.FINISHED, RunStatus.DELETED):
            return
        self.resume_if_stopped()
        sender = self.claim_run(takeover=True)
        if sender is None:  # it was asked to stop, and no epoch was open
            self.resume_if_stopped()
            sender = self.claim_run(takeover=True)
        assert sender is not None
        if self.state.status is RunStatus.RUNNING:
            epoch = self.state.last_durable_epoch + 1
            assert self.send(sender.opens(epoch))
            assert self.send(sender.reports(epoch, {"centroids": {0: 0}}))
            assert self.send(sender.triggers_after(self.state.last_checkpoint_id, epoch))
            if not self.state.pending:  # a person has aborted it before it began
                assert self.send(sender.triggers_after(self.state.last_checkpoint_id, epoch))
            last = sender.completes(self.state.last_checkpoint_id, committables=self.what_is_published(epoch))
            assert self.send(last)
            assert epoch == self.state.last_durable_epoch
        assert self.send(sender.commits(*self.state.uncommitted))
        assert self.send(sender.publishes())

    def go_on(self, steps: int, seed: int) -> None:
        """Let the run be driven for some steps, by a new attempt if there is no live one."""
        self.chance = chances(seed)
        is_over = self.state.status in (RunStatus.FINISHED, RunStatus.DELETED)
        if self.state.attempt is None and not is_over and self.chance.random() < 0.8:
            if self.chance.random() < 0.5:
                self.resume_if_stopped()
            self.claim_run()
        for _ in range(steps):
            if self.state.attempt is None:
                return
            self.send(self.an_event(self.senders[-1], self.chance.choice(self.next_steps()), likely=True))

    def resume_if_stopped(self) -> None:
        """Let the run go on, if a person has stopped it."""
        if self.state.status is RunStatus.STOPPED and self.state.stop is not None:
            assert self.send(RunResumed(stop_id=self.state.stop.stop_id, resumed_by="bob"))

    def next_steps(self) -> list[str]:
        """Return what a healthy driver would send next, each kind as often as it should come."""
        completes = ["completes"] if self.state.pending else []
        commits = ["commits"] if self.state.uncommitted else []
        if self.state.status is RunStatus.TERMINATING:
            return [*completes, *commits * 3, *["notifies"] * 6, "publishes"]
        last = self.state.epochs[-1] if self.state.epochs else None
        if last is None:
            return ["opens", "opens", "notifies", *commits]
        if last.status is EpochStatus.OPEN:
            return [*completes, "triggers"] if last.is_held else ["reports", "reports", "reports", *completes]
        if last.epoch > max((known.epoch for known in self.state.pending), default=NO_EPOCH):
            return ["triggers", "triggers", "opens", "publishes", *completes]
        return ["opens", "opens if ready", *completes]

    def claim_run(self, *, gone: int | None = None, takeover: bool = False) -> Sender | None:
        """Let the next attempt claim the run with any policy, and return it if it may."""
        self.claims += 1
        policy = CheckpointPolicy(
            every_epochs=self.chance.choice([1, 1, 1, 2, 3]),
            min_pause_seconds=self.chance.choice([0.0, 0.0, 0.0, LONG_SECONDS]),
            max_pending=self.chance.choice([1, 1, 2, 2, 3]),
            tolerable_failures=self.chance.choice([0, 1, 2]),
        )
        event = claim(self.claims, takeover=takeover, gone=gone, family=self.family)
        event = dataclasses.replace(
            event,
            policy=policy,
            lease_ttl_seconds=self.chance.choice(self.leases_seconds),
            ignore_edges=self.chance.random() < 0.2,
        )
        if not self.send(event) or self.state.attempt is None:  # or it was stopped instead
            return None
        self.senders.append(self.sender(self.claims, self.state.fencing_token))
        return self.senders[-1]

    def sender(self, number: int, token: int) -> Sender:
        """Return an attempt of this run."""
        return Sender(number, token, self.family)

    def send(self, event: Event) -> bool:
        """Send an event; tell whether it was accepted. Only a store remembers a request that was answered long ago."""
        if isinstance(event, CheckpointRequested | StopRequested) and self.is_forgotten(event):
            return False
        after = self.answer(event)
        if after is None:
            return False
        self.state = after
        self.heard.append(event)
        if after.completed is not None:
            self.completed[after.completed.checkpoint_id] = after.completed
        return True

    def is_forgotten(self, event: CheckpointRequested | StopRequested) -> bool:
        """Tell whether a request was made before, and the state does not know of it any more."""
        if isinstance(event, CheckpointRequested):
            return event in self.heard and event.request_id not in self.state.requests
        latest = self.state.stop.stop_id if self.state.stop is not None else None
        known = [heard.stop_id for heard in self.heard if isinstance(heard, StopRequested)]
        return event.stop_id in known and event.stop_id != latest

    def an_event(self, sender: Sender, kind: str, *, likely: bool = False) -> Event:
        """Return an event of a kind; a likely one fits the run as it is."""
        chance = self.chance
        epoch = self.state.last_epoch + self.odd(likely=likely)
        pending = [known.checkpoint_id for known in self.state.pending] or [self.state.last_checkpoint_id]
        checkpoint_id = chance.choice(pending) + self.odd(likely=likely)
        make: dict[str, Callable[[], Event]] = {
            "opens": lambda: sender.opens(epoch + 1, **self.some_heads(likely=likely)),
            "opens if ready": lambda: sender.opens_if_ready(epoch + 1, **self.some_heads(likely=likely)),
            "reports": lambda: sender.reports(epoch, self.some_reports(likely=likely), loss=chance.random()),
            "switches": lambda: sender.switches(epoch, chance.choice(list(UnalignedBy))),
            "marks": lambda: self.a_next_part(sender, epoch) if likely else self.some_parts(sender, epoch),
            "triggers": lambda: self.a_trigger(sender, epoch, likely=likely),
            "triggers last": lambda: self.a_last_trigger(sender, epoch),
            "acknowledges": lambda: sender.acknowledges(checkpoint_id, centroids=(self.odd(likely=likely),)),
            "completes": lambda: self.a_manifest(sender, checkpoint_id, likely=likely),
            "commits": lambda: self.a_commit(sender, likely=likely),
            "declines": lambda: self.a_failure(sender, checkpoint_id, likely=likely),
            "pins": lambda: sender.pins(chance.choice(_STREAMS), chance.choice(_STREAMS)),
            "finishes": lambda: sender.finishes(chance.choice(_STREAMS)),
            "changes": lambda: self.a_change(sender),
            "notifies": lambda: self.a_notice(sender, likely=likely),
            "ends": lambda: sender.ends(
                chance.choice(list(AttemptOutcome)),
                chance.choice([None, "no space"]),
                chance.choice([None, None, FailedOperator(operator_id="z", epoch=chance.choice([NO_EPOCH, 0, 7]))]),
            ),
            "publishes": sender.publishes,
        }
        return make[kind]()

    def odd(self, *, likely: bool) -> int:
        """Return by how much a number is wrong."""
        return 0 if likely else self.chance.choice([0, 0, 0, 1, -1, -2])

    def some_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return some of the names, or none."""
        return tuple(name for name in names if self.chance.random() < 0.5)

    def some_heads(self, *, likely: bool) -> dict[str, int]:
        """Return heads of any parallelism, one at least."""
        names = self.some_of(_HEADS) or _HEADS[:1]
        return {name: self.chance.choice([1, 1, 2, 3] if likely else [0, 1, 1, 1, 2, 3]) for name in names}

    def some_reports(self, *, likely: bool) -> dict[str, dict[int, int]]:
        """Return reports of the last epoch: of all its subtasks or some, or any, also of some that are not there."""
        if not likely or not self.state.epochs:
            return {name: {self.chance.randint(-1, 2): self.chance.randint(-1, 2)} for name in self.some_of(_HEADS)}
        share = self.chance.choice([1.0, 1.0, 0.6])
        return {
            head.name: {
                index: self.chance.choice(_RECORDS) if known is None else known
                for index, known in enumerate(head.values)
                if self.chance.random() < share
            }
            for head in self.state.epochs[-1].heads
        }

    def a_trigger(self, sender: Sender, epoch: int, *, likely: bool) -> Event:
        """Return the beginning of a checkpoint, as the driver says it or in another way."""
        last_id = self.state.last_checkpoint_id
        if likely:
            return sender.triggers_after(last_id, epoch - self.chance.choice([0, 0, 0, 0, 0, 0, 1]))
        return sender.triggers_after(last_id - self.chance.randint(0, 1), epoch, **self.some_heads(likely=False))

    def a_last_trigger(self, sender: Sender, epoch: int) -> Event:
        """Return the beginning of a checkpoint of the attempt's last epoch."""
        return dataclasses.replace(sender.triggers_after(self.state.last_checkpoint_id, epoch), is_last=True)

    def a_manifest(self, sender: Sender, checkpoint_id: int, *, likely: bool) -> Event:
        """Return a manifest with every acknowledgement that its checkpoint still wants, or with none."""
        pending = next((known for known in self.state.pending if known.checkpoint_id == checkpoint_id), None)
        wanted = {known.name: tuple(range(known.expected)) for known in pending.participants} if pending else {}
        manifest = sender.completes(checkpoint_id, sha256=self.chance.choice("aab") * 64)
        if not likely and self.chance.random() < 0.3:
            wanted = {}
        published = self.what_is_published(pending.epoch) if pending is not None else ()
        if not likely and self.chance.random() < 0.3:
            published = (*published[1:], prepared(self.state.last_epoch + self.odd(likely=False), "rows"))
        return dataclasses.replace(manifest, acknowledgements=wanted, committables=published)

    def what_is_published(self, through: int) -> tuple[Committable, ...]:
        """Return what a driver has prepared by the time that a checkpoint makes epochs durable; some of it is older."""
        found = []
        for epoch in self.state.epochs:
            ends = epoch.decision is not None and epoch.decision.terminated_by is not None
            names = [name for name, each in self.state.sinks.items() if each or ends]
            found += [(epoch.epoch, name) for name in names if epoch.epoch <= through]
        older = [(self.state.last_durable_epoch, "rows")] if self.chance.random() < 0.2 else []
        return tuple(prepared(*key, in_store=self.chance.random() < 0.2) for key in [*older, *found] if key[0] >= 0)

    def a_commit(self, sender: Sender, *, likely: bool) -> Event:
        """Return some or all of what is stored as committed, or anything."""
        stored = sorted(self.state.uncommitted)
        some = [key for key in stored if self.chance.random() < 0.7]
        odd = [] if likely else [(self.state.last_epoch, self.chance.choice(["rows", "model"]))]
        return sender.commits(*some, *odd)

    def a_change(self, sender: Sender) -> Event:
        """Return another definition."""
        dropped, sinks = self.some_of(_STREAMS), self.chance.choice([self.state.sinks, *_SINKS])
        kept = self.some_of(_STREAMS)
        return sender.changes("scaled", "y", *_INPUTS, dropped=dropped, kept=kept, sinks=sinks)

    def a_failure(self, sender: Sender, checkpoint_id: int, *, likely: bool) -> Event:
        """Return the failure of a checkpoint, or somebody else's reason for its end."""
        counted = [CheckpointFailure.DECLINED, CheckpointFailure.EXPIRED]
        return sender.declines(
            checkpoint_id, failure=self.chance.choice(counted if likely else list(CheckpointFailure))
        )

    def a_notice(self, sender: Sender, *, likely: bool) -> Event:
        """Return what a listener has heard of: the next epoch, the end, or anything."""
        listener_id = self.chance.choice(["log", "end"])
        if likely and listener_id == "end":
            late = self.chance.choice([0, 0, 0, 1])
            return sender.notifies(self.state.last_durable_epoch - late, "end", is_final=True)
        epoch = self.state.notified.get(listener_id, self.state.origin_epoch) + 1
        odd = 0 if likely else self.chance.randint(-2, 2)
        return sender.notifies(epoch + odd, listener_id, is_final=not likely and self.chance.random() < 0.5)

    def a_next_part(self, sender: Sender, epoch: int) -> Event:
        """Return a part that is not marked yet, and that comes after all it was computed from; rarely any."""
        parts = [found for name in _INPUTS for found in self.next_parts(name, epoch)]
        if self.chance.random() < 0.2:
            return sender.marks(NO_EPOCH, *self.next_parts("scaled", NO_EPOCH)[:1])
        if not parts or self.chance.random() < 0.2:
            return self.some_parts(sender, epoch)
        return sender.marks(epoch, self.chance.choice(parts))

    def next_parts(self, name: str, epoch: int) -> list[FinishedPart]:
        """Return all parts of an operator that may be marked next."""
        total, (narrow, wide) = _TOTALS[name], _INPUTS.get(name, ((), ()))
        return [
            part(name, first, end, total=total, narrow=narrow, wide=wide)
            for first in range(total)
            for end in range(first + 1, total + 1)
            if not any(self.is_marked(name, epoch, bucket, bucket + 1) for bucket in range(first, end))
            and all(self.is_marked(source, epoch, first, end) for source in narrow)
            and all(self.is_marked(source, epoch, 0, _TOTALS[source]) for source in wide)
        ]

    def is_marked(self, name: str, epoch: int, first: int, end: int) -> bool:
        """Tell whether buckets of an operator are durable."""
        edge = self.state.edge(epoch, name)
        return name in self.state.finished_operators or (edge is not None and edge.covers(first, end))

    def some_parts(self, sender: Sender, epoch: int) -> Event:
        """Return any parts, in running order; also of buckets that are not there, or that come too early."""
        names = self.chance.choice([self.some_of(tuple(_INPUTS)), ("pairs",), ("sums",), ("means",)])
        return sender.marks(epoch, *(self.a_part(name) for name in names))

    def a_part(self, name: str) -> FinishedPart:
        """Return any buckets of an operator."""
        total = self.chance.choice([_TOTALS[name]] * 9 + [2])
        first = self.chance.choice([*range(total), *range(total), -1])
        end = self.chance.choice([*range(first + 1, total + 1), *range(first + 1, total + 1), first, total + 1])
        narrow, wide = _INPUTS[name]
        return part(name, first, end, total=total, narrow=narrow, wide=wide)
