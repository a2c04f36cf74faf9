"""How do operators run on Spark? The same for a classic session and, with the DataFrame API alone, for Spark Connect.

Operators on whole values run in the driver, on blocks; operators on buckets run in the executors' Python, fused into
the job of whatever uses them; transforms are Spark's own. See `seam.Runner` for what each method guarantees.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from iteration_lib.errors import OperatorResultError, StateLocationError
from iteration_lib.model.bucket import subtask_count
from iteration_lib.model.operator import Kind, Operator
from iteration_lib.runner.calling import call_on_blocks, injectable, one_thread, user_errors
from iteration_lib.runner.node_cache import SHARED, CachedData, new_scope, remove_scope
from iteration_lib.runner.parts import Target, target_of
from iteration_lib.runner.pins import check_pinned, pin_saved, pin_source
from iteration_lib.runner.plan import PartsNode, restored_parts
from iteration_lib.runner.rows import RowReader, schema_of_data
from iteration_lib.runner.scratch import injected_scratch, scratch_of
from iteration_lib.runner.seam import Invocation, Materialised, PartListener, PinnedData, PinnedFile, Stream
from iteration_lib.runner.spark_buckets import BucketJobs
from iteration_lib.runner.spark_errors import CLOSED, FOREIGN, is_of_spark
from iteration_lib.runner.spark_frames import Frames, check_frame
from iteration_lib.runner.spark_jobs import RUN_CANCELLED, SparkJobs
from iteration_lib.runner.spark_session import is_local_master
from iteration_lib.runner.spark_streams import BucketStream, DataStream, FrameStream, ValueStream, scratch_name
from iteration_lib.runner.spark_tasks import RESULT_SCHEMA, remove_cached
from iteration_lib.state.block import ColumnError
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat, SavedStream
from iteration_lib.state.streams import check_buckets, load_whole

_ROWS_FOR_EVERY_CORE = 1 << 16  # Spark starts no Python for a task without rows

_logger = logging.getLogger(__name__)


class SparkRunner:
    """Runs operators on a Spark session."""

    def __init__(  # noqa: PLR0913  (what its owner may choose, all by keyword)
        self,
        spark: SparkSession,
        location: StateLocation,
        *,
        max_buckets: int,
        parallelism: int,
        owns_session: bool = False,
        scratch: str | None = None,
        cache_scope: str | None = None,
    ) -> None:
        """Run in the folder of one run; with `owns_session`, closing the runner stops the session.

        `scratch` is a folder of this runner's own, relative to the run's, which closing the runner removes. What a
        runner that was killed leaves there is for whoever named it to remove. What the nodes hold under a `cache_scope`
        that is given stays there for the next runner, until `release_cache`.
        """
        self._spark = spark
        self._location = location
        self._max_buckets = max_buckets
        self._parallelism = parallelism
        self._owns_session = owns_session
        self._jobs = SparkJobs(spark)
        self._owns_scope = cache_scope is None and is_local_master(spark)
        self._scope = cache_scope or (new_scope() if self._owns_scope else SHARED)
        self._scratch = scratch or f"scratch-{token_hex(8)}"
        self._epoch: int | None = None
        self._buckets = BucketJobs(spark, self._jobs, location, max_buckets=max_buckets, scratch=self._scratch)
        self._frames = Frames(spark, self._jobs, location, parallelism=parallelism, scratch=self._scratch)

    def pin(self, operator: Operator, params: object, *, folder: str) -> PinnedData:
        """Ask a data stream for its source and pin it; a DataFrame is written into the folder."""
        injected, description = {"params": params, "spark": self._spark}, f"pin/{operator.operator_id}"
        arguments = {name: injected[name] for name in operator.injected}
        source = self._jobs.run(
            lambda: _call_user(operator, None, arguments), operator=operator, epoch=None, description=description
        )
        if not isinstance(source, DataFrame):
            return pin_source(source, operator=operator, location=self._location, folder=folder)
        with self._jobs.errors(operator, None):
            frame = check_frame(source, operator_id=operator.operator_id)
        stream = FrameStream(frame=frame, operator=operator, epoch=None, description=description)
        saved = self._frames.write(stream, folder=folder)
        return pin_saved(saved.files, operator_id=operator.operator_id)

    def open_data(self, pinned: PinnedData) -> Stream:
        """Return a pinned data stream."""
        check_pinned(self._location, pinned)

        def read_schema() -> CachedData:
            return CachedData(
                location=self._location,
                pinned=pinned,
                schema=schema_of_data(self._location, pinned),
                count=self._max_buckets,
                scope=self._scope,
            )

        return DataStream(pinned=pinned, read_schema=read_schema, read_frame=lambda: self._frames.of_pinned(pinned))

    def without_rows(self, stream: Stream) -> Stream:
        """Return the columns of a data stream."""
        if not isinstance(stream, DataStream):
            raise _not_ours(stream)
        pinned = stream.pinned.without_rows()
        return DataStream(
            pinned=pinned,
            read_schema=lambda: replace(stream.cached, pinned=pinned),
            read_frame=lambda: self._frames.without_rows(stream.frame),
            columns_of=stream,
        )

    def compute(self, invocation: Invocation) -> Stream:
        """Run an operator on whole values at once; note the others, to be computed where they are used."""
        self._jobs.check_not_cancelled()
        self._release_before(invocation.epoch)
        operator = invocation.operator
        if operator.kind is Kind.VALUE:
            return ValueStream(batch=self._call_on_values(invocation))
        if operator.kind is Kind.FRAME:
            return self._transform(invocation)
        parallelism = subtask_count(operator.parallelism, default=self._parallelism, count=self._max_buckets)
        return BucketStream(
            call=invocation,
            parallelism=parallelism,
            epoch=invocation.epoch,
            description=invocation.description,
            scratch=scratch_of(invocation, self._location),
        )

    def hold(self, value: object, *, operator: Operator, epoch: int | None, description: str) -> Stream:
        """Return a stream of a record batch, or of a DataFrame, which is computed when it is materialised."""
        self._jobs.check_not_cancelled()
        self._release_before(epoch)
        if isinstance(value, pa.RecordBatch):
            return ValueStream(batch=value)
        if not isinstance(value, DataFrame):
            raise TypeError(f"{type(value).__name__} is neither a record batch nor a DataFrame")
        with self._jobs.errors(operator, epoch):
            frame = check_frame(value, operator_id=operator.operator_id)
        return FrameStream(frame=frame, operator=operator, epoch=epoch, description=description)

    def give(self, stream: Stream) -> object:
        """Return the record batch of a whole value, or a DataFrame."""
        return stream.frame if isinstance(stream, FrameStream) else self._whole(stream)

    def is_computed(self, stream: Stream) -> bool:
        """Whether a stream's rows are there."""
        if isinstance(stream, FrameStream):
            return stream.saved is not None
        return not isinstance(stream, BucketStream) or stream.parts is not None

    def materialise(
        self,
        stream: Stream,
        *,
        folder: str | None,
        file_format: FileFormat = FileFormat.ARROW,
        done: SavedStream | None = None,
        on_part: PartListener | None = None,
    ) -> Materialised:
        """Compute a stream, count it, and with a folder write it there; DataFrames are always written as Parquet."""
        target = target_of(stream.kind, self._location, folder, file_format, done=done, on_part=on_part)
        if isinstance(stream, ValueStream):  # the driver has it, also when Spark is cancelled
            saved = target.write(stream.kind, [stream.batch]) if target is not None else None
            return Materialised(stream=stream, records=(stream.batch.num_rows,), saved=saved)
        self._jobs.check_not_cancelled()
        if isinstance(stream, FrameStream):
            return self._save_frame(stream, target)
        if isinstance(stream, BucketStream):
            saved = self._save_buckets(stream, target) if target is not None else None
            return Materialised(stream=stream, records=self._buckets.records(stream), saved=saved)
        raise _not_ours(stream)

    def restore(self, saved: SavedStream) -> Stream:
        """Return a stream that was materialised before, by this runner or by the plain-Python one."""
        self._jobs.check_not_cancelled()
        kind = Kind(saved.kind)
        if kind is Kind.VALUE:
            return ValueStream(batch=load_whole(self._location, saved))
        if kind is Kind.FRAME:
            return self._frames.restore(saved)
        check_buckets(self._location, saved, count=self._max_buckets)
        parallelism = min(self._parallelism, self._max_buckets)
        return BucketStream(call=None, parallelism=parallelism, parts=self._verified_parts(saved))

    def cancel(self, why: str = RUN_CANCELLED) -> None:
        """Stop what is running, and refuse what comes; whoever is refused hears why."""
        self._jobs.cancel(why)

    def close(self) -> None:
        """Release what is persisted, scratch files, this node's cache, and the session if it is the runner's own."""
        self._jobs.close()
        self._frames.release_all()
        try:
            self._location.remove(self._scratch)
        except (StateLocationError, OSError) as err:
            _logger.warning("event=scratch_left folder=%s error=%s", self._scratch, err)
        if self._owns_scope:
            remove_scope(self._scope)
        if self._owns_session:
            with suppress(*CLOSED):
                self._spark.stop()

    def _call_on_values(self, invocation: Invocation) -> pa.RecordBatch:
        operator = invocation.operator
        inputs = {name: self._whole(stream) for name, stream in invocation.inputs.items()}
        injected = injectable(operator, params=invocation.params, epoch=invocation.epoch)
        injected |= injected_scratch(scratch_of(invocation, self._location))
        with one_thread():
            return call_on_blocks(operator, inputs, injected | {"metrics": invocation.metrics})

    def _whole(self, stream: Stream) -> pa.RecordBatch:
        if isinstance(stream, ValueStream):
            return stream.batch
        if isinstance(stream, DataStream):
            return RowReader(self._location, stream.pinned, stream.cached.schema).read(range(stream.pinned.rows))
        if isinstance(stream, BucketStream):
            return self._buckets.whole(stream)
        if isinstance(stream, FrameStream):
            return self._frames.collect(stream)
        raise _not_ours(stream)

    def _transform(self, invocation: Invocation) -> FrameStream:
        operator, epoch = invocation.operator, invocation.epoch
        injected = {"params": invocation.params, "epoch": epoch, "spark": self._spark}
        for stream in invocation.inputs.values():
            if isinstance(stream, BucketStream):
                self._buckets.compute(stream)  # by a call of its own

        def transform() -> DataFrame:
            try:
                inputs = {name: self._frame(stream, epoch) for name, stream in invocation.inputs.items()}
            except ColumnError as err:
                problem = f"takes a DataFrame that Spark cannot have: {err}"
                raise OperatorResultError(operator_id=operator.operator_id, problem=problem) from err
            result = _call_user(operator, epoch, inputs | {name: injected[name] for name in operator.injected})
            return check_frame(result, operator_id=operator.operator_id)

        inputs = invocation.inputs.values()
        frame = self._frames.run(
            transform, operator=operator, epoch=epoch, description=invocation.description, sources=_sources(inputs)
        )
        for data in (stream for stream in inputs if isinstance(stream, DataStream)):
            (data.columns_of or data).has_columns = True
        if invocation.consumers > 1:
            with self._jobs.errors(operator, epoch):
                frame = self._frames.persist(frame, epoch=epoch)
        return FrameStream(
            frame=frame, operator=operator, epoch=epoch, description=invocation.description, sources=_sources(inputs)
        )

    def _frame(self, stream: Stream, epoch: int | None) -> DataFrame:
        if isinstance(stream, FrameStream):
            return stream.frame
        if isinstance(stream, DataStream):
            return stream.frame
        if isinstance(stream, ValueStream):
            return self._frames.of_batch(stream.batch)
        if isinstance(stream, BucketStream):
            return self._frames.of_parts(cast("PartsNode", stream.parts), epoch=epoch)  # computed before
        raise _not_ours(stream)

    def _verified_parts(self, saved: SavedStream) -> PartsNode:
        return restored_parts(self._location, saved, self._frames.verify(saved))

    def _save_buckets(self, stream: BucketStream, target: Target) -> SavedStream:
        done = self._verified_parts(target.done) if target.done is not None else None
        return self._buckets.write(stream, target, done=done)

    def _save_frame(self, stream: FrameStream, target: Target | None) -> Materialised:
        if target is not None and target.file_format is FileFormat.PARQUET:
            published, records = self._frames.publish(stream, folder=target.folder)
            return Materialised(stream=stream, records=records, saved=published)
        saved = None
        if target is not None:
            saved = self._frames.write(stream, folder=target.folder)
            target.tell(saved)
        elif stream.saved is None:
            self._frames.write(stream, folder=f"{self._scratch}/{scratch_name(stream.epoch)}/{token_hex(8)}")
        return Materialised(stream=stream, records=stream.records, saved=saved)

    def _release_before(self, epoch: int | None) -> None:
        """Drop what was kept for epochs before the last one."""
        if epoch is None or epoch == self._epoch:
            return
        self._epoch = epoch
        self._frames.release(before_epoch=epoch - 1)
        if epoch > 1:
            with suppress(StateLocationError):  # it goes with the whole folder, at the latest
                self._location.remove(f"{self._scratch}/{scratch_name(epoch - 2)}")


def release_cache(spark: SparkSession, scope: str) -> None:
    """Remove what the nodes hold under a scope: a task for each core goes to whichever nodes have them.

    Where Spark does not do it, or leaves out a node, that node finds it idle one day.
    """
    try:
        spark.range(_ROWS_FOR_EVERY_CORE).mapInArrow(remove_cached(scope), RESULT_SCHEMA).count()
    except FOREIGN as err:
        _logger.warning("event=cache_left scope=%s error=%s", scope, err)


def _sources(streams: Iterable[Stream]) -> frozenset[PinnedFile]:
    """Return the user's files that Spark reads where it computes what a transform makes of streams."""
    read = (stream.sources for stream in streams if isinstance(stream, DataStream | FrameStream))
    return frozenset[PinnedFile]().union(*read)


def _call_user(operator: Operator, epoch: int | None, arguments: Mapping[str, object]) -> object:
    """Call a function that works with Spark itself; what Spark raises in it passes as it is."""
    with user_errors(operator, epoch, passes=is_of_spark):
        return operator.function(**arguments)


def _not_ours(stream: Stream) -> TypeError:
    return TypeError(f"{type(stream).__name__} is not a stream of this runner")
