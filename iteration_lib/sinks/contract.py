"""Does a sink keep what the seam promises? A suite for your own: subclass it in a test module, and pytest finds it.

    class TestMySink(SinkContract):
        def sink(self, target): return MySink(f"{SERVER}/{target}")
        def read(self, target): return [dict(row) for row in ...]

Each check makes up a target's name, so that none of them meets what another left. A crash is tried at every line of the
sink's own module, and of those in `modules`: an exception that nothing catches, after which other objects go on, as
another process would. A reader looks between every two lines. What a kill does to bytes in flight no test can say
from inside: that is for the sink's own tests, and for what it is built upon. Nor whether another process, with another
id and other hashes, would describe the target by the same line.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from iteration_lib.errors import StateCorruptedError
from iteration_lib.sinks.seam import Sink, SinkTransaction, check_sink, describe_sink
from iteration_lib.sinks.trial import (
    SCHEMA,
    Crash,
    at_every_line,
    at_once,
    new_name,
    number_of,
    outputs_of,
    publication_of,
    rows_of,
    transaction_of,
)

Row = Mapping[str, Any]  # Any: what a column holds


class SinkContract:
    """The checks. `sink` and `read` are what a subclass has to say; `modules` are further ones to crash in."""

    modules: ClassVar[Sequence[ModuleType]] = ()

    def sink(self, target: str) -> Sink:
        """Return a new sink that publishes into a target: a name of letters and digits, which nothing has yet."""
        raise NotImplementedError

    def read(self, target: str) -> Sequence[Row]:
        """Return every row that a reader sees in a target now, always in the same order; none if nothing is there.

        Other columns than `pass_number`, `word` and `weight` are passed over.
        """
        raise NotImplementedError

    def test_sink_describes_itself_in_one_line_and_can_be_used(self) -> None:
        """People are told where it goes; what is found out at the start is not found out after hours."""
        sink = self.sink(new_name())

        check_sink(sink)

        _expect([describe_sink(sink)], describe_sink(sink).splitlines(), "the description is one line")

    def test_description_is_the_targets_own(self) -> None:
        """By it a run knows, when it is taken over, whether what waits to be committed still goes where it should."""
        target, other = new_name(), new_name()
        sinks = [self.sink(name) for name in (target, target, other)]  # all there at once: none has another's `id`

        one, same, another = map(describe_sink, sinks)

        _expect(one, same, "what two sinks of one target say")
        is_known_by_its_class = getattr(sinks[0], "describe", None) is None
        _expect(True, is_known_by_its_class or one != another, "two targets do not share a description")

    def test_prepared_rows_are_not_seen(self) -> None:
        """Nothing shows before the epoch is durable."""
        target = new_name()

        self._prepare(target, transaction_of(0))

        self._expect_seen(target)

    def test_committed_rows_are_seen_epoch_by_epoch(self) -> None:
        """Each commit adds its epoch's rows, whole."""
        target, run = new_name(), [transaction_of(epoch) for epoch in range(3)]

        for count, transaction in enumerate(run, start=1):
            self._publish(target, transaction)

            self._expect_seen(target, *run[:count])

    def test_epochs_of_one_checkpoint_are_prepared_before_the_first_is_committed(self) -> None:
        """As `Checkpointing(every_epochs=3)` has it."""
        target, run = new_name(), [transaction_of(epoch) for epoch in range(3)]
        committables = [self._prepare(target, transaction) for transaction in run]

        for count, (transaction, committable) in enumerate(zip(run, committables, strict=True), start=1):
            self.sink(target).commit(transaction, committable)

            self._expect_seen(target, *run[:count])

    def test_no_rows_are_published_as_none(self) -> None:
        """An epoch without rows is an epoch like any other."""
        target, transaction = new_name(), transaction_of(0)

        self.sink(target).commit(transaction, self.sink(target).prepare(transaction, publication_of(0, files=0)))

        self._expect_seen(target)

    def test_commit_may_be_repeated(self) -> None:
        """Whoever takes the run over commits again what may have been committed."""
        target, transaction = new_name(), transaction_of(0)
        committable = self._publish(target, transaction)

        for _ in range(2):
            self.sink(target).commit(transaction, committable)

        self._expect_seen(target, transaction)

    def test_commit_of_an_older_epoch_that_is_repeated_late_changes_nothing(self) -> None:
        """A process that was stopped for a week commits once more."""
        target, run = new_name(), [transaction_of(epoch) for epoch in range(3)]
        committables = [self._publish(target, transaction) for transaction in run]
        before = self.read(target)

        self.sink(target).commit(run[0], committables[0])

        _expect(before, self.read(target), "what readers see, and in which order")

    def test_commits_at_the_same_time_show_rows_once(self) -> None:
        """A superseded attempt and its successor commit the same transaction."""
        target, transaction = new_name(), transaction_of(0)
        committable = self._prepare(target, transaction)

        at_once([lambda: self.sink(target).commit(transaction, committable)] * 4)

        self._expect_seen(target, transaction)

    def test_runs_at_the_same_time_do_not_disturb_each_other(self) -> None:
        """Two runs publish into one target."""
        target, runs = new_name(), [transaction_of(0, run=run) for run in range(3)]

        at_once([partial(self._publish, target, transaction) for transaction in runs])

        self._expect_seen(target, *runs)

    def test_run_that_has_the_key_of_a_deleted_one_is_another(self) -> None:
        """And a late commit of the deleted one takes nothing of what the other has prepared."""
        target, deleted = new_name(), transaction_of(0)
        run = replace(transaction_of(0, run=1), run_key=deleted.run_key)
        committed = self._publish(target, deleted)
        prepared = self._prepare(target, run)

        self.sink(target).commit(deleted, committed)
        self.sink(target).commit(run, prepared)

        self._expect_seen(target, deleted, run)

    def test_outputs_of_an_epoch_are_all_seen(self) -> None:
        """A run publishes two outputs into one target; all are prepared before one is committed."""
        target, outputs = new_name(), outputs_of(0)
        committables = [self._prepare(target, transaction) for transaction in outputs]

        for transaction, committable in zip(outputs, committables, strict=True):
            self.sink(target).commit(transaction, committable)

        self._expect_seen(target, *outputs)

    def test_outputs_at_the_same_time_do_not_disturb_each_other(self) -> None:
        """Nothing says that one is through before the other begins."""
        target, outputs = new_name(), outputs_of(0)

        at_once([partial(self._publish, target, transaction) for transaction in outputs])

        self._expect_seen(target, *outputs)

    def test_prepare_may_be_repeated(self) -> None:
        """The same attempt prepares again, because it does not know how the first call ended."""
        target, transaction = new_name(), transaction_of(0)

        self._prepare(target, transaction)
        self._publish(target, transaction)

        self._expect_seen(target, transaction)

    def test_prepares_at_the_same_time_are_one(self) -> None:
        """The connection of the first was lost, and its server goes on with it while the attempt prepares again."""
        target, transaction = new_name(), transaction_of(0)
        committables = at_once([lambda: self._prepare(target, transaction)] * 4)

        self.sink(target).commit(transaction, committables[0])

        self._expect_seen(target, transaction)

    def test_prepare_that_is_repeated_after_the_commit_changes_nothing(self) -> None:
        """The first call hung, the second one was committed, and now the first goes on. A reader looks at each line."""
        target, transaction = new_name(), transaction_of(0)
        self._publish(target, transaction)

        with at_every_line(self._files(self.sink(target)), lambda: self._expect_seen(target, transaction)):
            self._prepare(target, transaction)

        self._expect_seen(target, transaction)

    def test_aborted_transaction_is_never_seen_and_takes_nothing_along(self) -> None:
        """A new attempt aborts what the older one prepared of the same epoch, and commits what it prepared itself."""
        target, older, newer = new_name(), transaction_of(0, token=1), transaction_of(0, token=2)
        self.sink(target).prepare(older, publication_of(9))
        committable = self._prepare(target, newer)

        self.sink(target).abort(older)
        self.sink(target).commit(newer, committable)

        self._expect_seen(target, newer)

    def test_abort_takes_nothing_of_another_output_epoch_or_run_along(self) -> None:
        """An attempt died between two checkpoints: what is stored of the first is committed, the rest goes."""
        kept, another_output = outputs_of(0)
        for dropped in (another_output, transaction_of(1), transaction_of(0, run=1)):
            target = new_name()
            self._prepare(target, dropped)
            committable = self._prepare(target, kept)

            self.sink(target).abort(dropped)
            self.sink(target).commit(kept, committable)

            self._expect_seen(target, kept)

    def test_superseded_attempt_that_prepares_late_is_never_seen(self) -> None:
        """It was in the middle of it when it was aborted; what it computed may be something else."""
        target, older, newer = new_name(), transaction_of(0, token=1), transaction_of(0, token=2)
        committable = self._prepare(target, newer)
        self.sink(target).abort(older)

        self.sink(target).prepare(older, publication_of(9))
        self.sink(target).commit(newer, committable)
        self.sink(target).prepare(older, publication_of(9))

        self._expect_seen(target, newer)

    def test_abort_may_be_repeated_and_finds_nothing_to_drop(self) -> None:
        """Nobody knows how far an attempt came before it was gone."""
        target, never_prepared, prepared = new_name(), transaction_of(0, token=1), transaction_of(0, token=2)
        self.sink(target).abort(never_prepared)
        self._prepare(target, prepared)

        for transaction in (never_prepared, prepared, prepared):
            self.sink(target).abort(transaction)

        self._expect_seen(target)

    def test_rows_that_are_not_what_was_written_are_not_published(self) -> None:
        """A file that changed since is found out before anything is durable."""
        target, transaction, publication = new_name(), transaction_of(0), publication_of(0)
        first, *others = publication.files
        changed = replace(publication.stream, files=(replace(first, sha256="0" * 64), *others))

        try:
            self.sink(target).prepare(transaction, replace(publication, stream=changed))
        except StateCorruptedError:
            self._expect_seen(target)
        else:
            raise AssertionError("prepare took a file that has another digest")

    def test_crash_at_any_line_of_prepare_is_aborted(self) -> None:
        """What each attempt left is dropped, nothing of it is ever seen, and the last one's rows are."""
        target = new_name()
        for line in itertools.count(1):
            sink, transaction = self.sink(target), transaction_of(0, token=line)
            has_crashed = self._crash(line, sink, partial(sink.prepare, transaction, publication_of(0)))
            self._expect_seen(target)
            self.sink(target).abort(transaction)
            if not has_crashed:
                break

        last = transaction_of(0, token=line + 1)
        self._publish(target, last)

        self._expect_seen(target, last)

    def test_crash_at_any_line_of_prepare_is_no_hindrance_to_another_one(self) -> None:
        """The same transaction is prepared again over what the calls before left, until one comes through."""
        target, transaction = new_name(), transaction_of(0)
        for line in itertools.count(1):
            sink = self.sink(target)
            if not self._crash(line, sink, partial(sink.prepare, transaction, publication_of(0))):
                break

        self._publish(target, transaction)

        self._expect_seen(target, transaction)

    def test_crash_at_any_line_of_commit_shows_all_or_nothing(self) -> None:
        """And all when the commit is repeated."""
        transaction = transaction_of(0)
        for line in itertools.count(1):
            target = new_name()
            committable, sink = self._prepare(target, transaction), self.sink(target)
            has_crashed = self._crash(line, sink, partial(sink.commit, transaction, committable))
            self._expect_whole(target, [transaction])

            self.sink(target).commit(transaction, committable)

            self._expect_seen(target, transaction)
            if not has_crashed:
                break

    def test_crash_at_any_line_of_abort_is_no_hindrance_to_another_one(self) -> None:
        """The abort is repeated until it comes through, and the next attempt's rows are seen."""
        target, older, newer = new_name(), transaction_of(0, token=1), transaction_of(0, token=2)
        self._prepare(target, older)
        for line in itertools.count(1):
            sink = self.sink(target)
            if not self._crash(line, sink, partial(sink.abort, older)):
                break

        self._publish(target, newer)

        self._expect_seen(target, newer)

    def test_reader_never_sees_half_of_an_epoch(self) -> None:
        """It looks before every line of prepare, of commit and of a commit that is repeated."""
        target, run = new_name(), [transaction_of(epoch) for epoch in range(2)]
        looks: list[None] = []

        def look() -> None:
            self._expect_whole(target, run)
            looks.append(None)

        with at_every_line(self._files(self.sink(target)), look):
            committables = [self._publish(target, transaction) for transaction in run]
            self.sink(target).commit(run[0], committables[0])

        self._expect_seen(target, *run)
        _expect(True, bool(looks), "the reader looked; name the modules that the sink is made of in `modules`")

    def _prepare(self, target: str, transaction: SinkTransaction) -> Mapping[str, object]:
        """Return the committable as the store gives it back; the run's files are gone then, as they are in a run."""
        publication = publication_of(number_of(transaction))
        prepared = self.sink(target).prepare(transaction, publication)
        committable: Mapping[str, object] = json.loads(json.dumps(prepared))
        for file in publication.files:
            publication.location.remove(file.path)
        return committable

    def _publish(self, target: str, transaction: SinkTransaction) -> Mapping[str, object]:
        committable = self._prepare(target, transaction)
        self.sink(target).commit(transaction, committable)
        return committable

    def _crash(self, line: int, sink: Sink, call: Callable[[], object]) -> bool:
        """Make a call that crashes at the given line; whether it came that far, which it does at line 1."""
        lines, crashes = itertools.count(1), []

        def crash() -> None:
            if next(lines) == line:
                crashes.append(line)
                raise Crash

        try:
            with at_every_line(self._files(sink), crash):
                call()
        except BaseException:  # the crash, or what a library made of it that was in between
            if not crashes:
                raise
        _expect(True, line > 1 or bool(crashes), "the sink crashed; name the modules that it is made of in `modules`")
        return bool(crashes)

    def _files(self, sink: Sink) -> frozenset[str]:
        found = [inspect.getsourcefile(module) for module in (inspect.getmodule(type(sink)), *self.modules) if module]
        return frozenset(file for file in found if file)

    def _expect_seen(self, target: str, *transactions: SinkTransaction) -> None:
        expected = Counter(row for transaction in transactions for row in rows_of(number_of(transaction)))
        _expect(expected, self._seen(target), "what readers see")

    def _expect_whole(self, target: str, transactions: Sequence[SinkTransaction]) -> None:
        """Check that of each epoch all rows are seen once, or none."""
        seen = self._seen(target)
        each = [rows_of(number_of(one)) for one in transactions]
        whole = [rows for rows in each if any(row in seen for row in rows)]
        _expect(Counter(itertools.chain.from_iterable(whole)), seen, "what readers see, whole epochs")

    def _seen(self, target: str) -> Counter[tuple[object, ...]]:
        return Counter(tuple(row[name] for name in SCHEMA.names) for row in self.read(target))


def _expect(expected: object, found: object, what: str) -> None:
    if expected != found:
        raise AssertionError(f"{what}:\nexpected {expected}\n   found {found}")
