"""Operators that the tests give to runners; a module of its own, because Spark's workers import it."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iteration_lib.errors import InputError
from iteration_lib.model.bucket import Bucket
from iteration_lib.model.metrics import Metrics
from iteration_lib.model.operator import Function, Kind, Operator, Role, parameters_of
from iteration_lib.model.source import ParquetSource, RecordsSource, parquet, records
from iteration_lib.runner.seam import Invocation, Materialised, Runner, Stream

Block = Mapping[str, npt.NDArray[Any]]

BUCKETS = 16  # of every run here


@dataclass(frozen=True, slots=True)
class Params:
    """What the operators here may want to know."""

    input: str = ""
    seed: int = 7
    log: str = ""  # a file to which each call of an operator's body adds a line
    columns: tuple[str, ...] | None = None


@dataclass
class Harness:
    """Asks a runner for one operator after another."""

    runner: Runner
    params: Params = field(default_factory=Params)
    metrics: dict[str, float] = field(default_factory=dict)

    def open(self, function: Function) -> Stream:
        """Pin and open a data stream."""
        operator = operator_of(function, Kind.DATA)
        return self.runner.open_data(self.runner.pin(operator, self.params, folder=f"pins/{operator.name}"))

    def call(
        self,
        function: Function,
        kind: Kind,
        *,
        epoch: int | None = 0,
        parallelism: int | None = None,
        consumers: int = 1,
        scratch: str | None = None,
        **inputs: Stream,
    ) -> Stream:
        """Compute an operator."""
        operator = operator_of(function, kind, parallelism=parallelism)
        metrics = Metrics(operator_id=operator.operator_id)
        stream = self.runner.compute(
            Invocation(
                operator=operator,
                inputs=inputs,
                params=self.params,
                epoch=epoch,
                metrics=metrics,
                description=f"tests/{epoch}/{operator.operator_id}",
                consumers=consumers,
                scratch=scratch,
            )
        )
        self.metrics |= metrics.values()
        return stream

    def value(self, function: Function, **inputs: Stream) -> Stream:
        """Compute an operator on whole values."""
        return self.call(function, Kind.VALUE, **inputs)

    def buckets(self, function: Function, *, consumers: int = 1, **inputs: Stream) -> Stream:
        """Compute an operator on buckets."""
        return self.call(function, Kind.BUCKETS, consumers=consumers, **inputs)

    def write(self, stream: Stream, folder: str = "out", **options: Any) -> Materialised:
        """Materialise a stream into a folder."""
        return self.runner.materialise(stream, folder=folder, **options)

    def rows(self, stream: Stream) -> dict[str, list[Any]]:
        """Return a stream's rows as an operator on whole values sees them."""
        seen: dict[str, list[Any]] = {}

        def look(given: Block) -> None:
            seen.update({name: array.tolist() for name, array in given.items()})

        self.value(look, given=stream)
        return seen

    def calls(self) -> list[str]:
        """Return what the operators' bodies noted."""
        path = Path(self.params.log)
        return sorted(path.read_text().split()) if path.exists() else []

    def noted_by(self, name: str) -> list[int]:
        """Return the buckets that the body of an operator noted."""
        return [int(line.rpartition("-")[2]) for line in self.calls() if line.startswith(f"{name}-")]


# Makes a harness around a runner in a folder, with a parallelism and parameters.
MakeHarness = Callable[..., Harness]


def operator_of(function: Function, kind: Kind, *, parallelism: int | None = None) -> Operator:
    """Return an operator that is called as its function is."""
    inputs, injected = parameters_of(function, own=("scratch",))
    return Operator(
        operator_id=function.__name__,
        name=function.__name__,
        role=Role.DATA if kind is Kind.DATA else Role.OPERATOR,
        kind=kind,
        function=function,
        inputs=inputs,
        injected=injected,
        parallelism=parallelism,
    )


def note(params: Params, line: str) -> None:
    """Add a line to the log, whole even when several processes do so."""
    descriptor = os.open(params.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def table(params: Params) -> ParquetSource:
    """Read whatever Parquet the parameters name."""
    return parquet(params.input, columns=params.columns)


def thousand() -> RecordsSource:
    """Give 1,000 rows of every sort that a block can hold."""
    draw = np.random.default_rng(1)
    return records(
        number=np.arange(1000),
        vector=draw.normal(size=(1000, 3)),
        cube=draw.normal(size=(1000, 2, 2)).astype(np.float32),
        text=np.array([f"row {n}" for n in range(1000)]),
        flag=draw.random(1000) < 0.5,
    )


def three() -> RecordsSource:
    """Give fewer rows than there are buckets."""
    return records(vector=np.arange(6.0).reshape(3, 2))


def weights() -> Block:
    """Give a small value."""
    return {"w": np.array([[0.1, 0.2, 0.3]])}


def products(points: Block, w: Block, rng: np.random.Generator, bucket: Bucket, epoch: int) -> Block:
    """Compute something whose bits depend on the order of its sums, on the bucket and on the epoch."""
    score = points["vector"] @ w["w"][0]
    return {
        "score": score + rng.normal(size=len(score)) + epoch,
        "sum": np.full(len(score), points["cube"].sum()),
        "bucket": np.full(len(score), bucket.index),
        "scaled": points["cube"] * w["w"][0, 0],
        "name": np.array([f"{text}!" for text in points["text"]], dtype=object),
    }


def sums(points: Block, bucket: Bucket, params: Params) -> Block:
    """Sum a bucket's vectors: one row."""
    if params.log:
        note(params, f"sums-{bucket.index:02d}")
    return {"sum": points["vector"].sum(axis=0, keepdims=True), "rows": np.array([len(points["vector"])])}


def doubled(given: Block, bucket: Bucket, params: Params) -> Block:
    """Double the sums."""
    if params.log:
        note(params, f"doubled-{bucket.index:02d}")
    return {"sum": 2 * given["sum"]}


def total(given: Block, metrics: Metrics) -> Block:
    """Add sums up, in the order in which they come."""
    found = np.zeros(given["sum"].shape[1])
    for row in given["sum"]:
        found = found + row
    metrics.report("total", found.sum())
    return {"total": found[np.newaxis]}


def both(one: Block, other: Block) -> Block:
    """Take two streams of buckets."""
    return {"sum": one["sum"] + other["sum"]}


def products_of(harness: Harness, *, epoch: int = 3) -> Stream:
    """Compute `products` of the thousand rows."""
    points, w = harness.open(thousand), harness.value(weights)
    return harness.call(products, Kind.BUCKETS, epoch=epoch, points=points, w=w)


def places(points: Block, bucket: Bucket) -> Block:
    """Say which rows this bucket holds."""
    return {"bucket": np.full(len(points["number"]), bucket.index), "number": points["number"]}


def places_of_all(points: Block) -> Block:
    """Return some rows as one value."""
    return {"number": points["number"], "text": points["text"]}


def large(points: Block) -> Block:
    """Return more than a subtask may send to the driver."""
    return {"x": np.repeat(points["number"].astype(float), 900).reshape(-1, 900), "number": points["number"]}


def heavy() -> Block:
    """Give a value that pyspark makes a broadcast of."""
    return {"x": np.arange(200_000.0)}


def widened(points: Block, heavy: Block) -> Block:
    """Return as much as the subtasks may just send to the driver, and no task takes in a message."""
    return {"x": points["number"][:, np.newaxis] + heavy["x"][:300], "number": points["number"]}


def counted(given: Block) -> Block:
    """Count rows and add up everything."""
    return {"rows": np.array([len(given["number"])]), "x": np.array([given["x"].sum()])}


def drawn(bucket: Bucket, rng: np.random.Generator) -> Block:
    """Draw a random number in each bucket."""
    return {"bucket": np.array([bucket.index]), "x": rng.random(1)}


def drawn_once(rng: np.random.Generator) -> Block:
    """Draw a random number."""
    return {"x": rng.random(1)}


def widths(points: Block) -> Block:
    """Multiply by a matrix, which fails where an empty bucket has no width."""
    return {"x": (points["vector"] @ np.ones((2, 4))).sum(axis=0, keepdims=True)}


def overwrite(points: Block) -> Block:
    """Try to change what was given."""
    points["vector"][...] = 0.0
    return {"x": points["vector"]}


def fails(points: Block, bucket: Bucket) -> Block:
    """Fail in some buckets."""
    if bucket.index >= 5:
        raise ZeroDivisionError(f"bucket {bucket.index} divides by zero")
    return {"x": points["number"], "number": points["number"]}


def refuses(points: Block, bucket: Bucket) -> Block:
    """Raise an error of this project."""
    if bucket.index == 9:
        raise InputError("column 'x' holds NaN; drop such rows")
    return {"x": points["number"]}


def returns_objects(points: Block) -> Block:
    """Return what no stream can hold."""
    return {"x": np.array([object()] * len(points["number"]))}


def returns_several(points: Block, bucket: Bucket) -> Block:
    """Return other columns for the last bucket."""
    return {"x": points["number"] if bucket.index < 15 else points["vector"]}


def dies_once(points: Block, bucket: Bucket, params: Params) -> Block:
    """Kill the process of its first call for bucket 3, as the kernel does when memory runs out."""
    marker = Path(params.log)
    if bucket.index == 3 and not marker.exists():
        marker.touch()
        os._exit(9)
    return {"number": points["number"]}


def meets_an_outage(points: Block, bucket: Bucket, params: Params) -> Block:
    """Fail in bucket 3 with what may pass, until it has been called there as often as `seed` says."""
    if bucket.index == 3:
        note(params, "called")
        if Path(params.log).read_text().split().count("called") < params.seed:
            raise InputError("the input is away", is_passing=True)
    return {"number": points["number"]}


def waits(points: Block, params: Params) -> Block:
    """Say that it has begun, and wait until it is told to go on."""
    note(params, "begun")
    while Path(params.log).exists():
        pass
    return {"x": points["number"]}


def awaits_a_sign(points: Block, bucket: Bucket, params: Params) -> Block:
    """Wait in the last bucket until there is a file beside the log, and note when that came to nothing."""
    if bucket.index == bucket.count - 1:
        try:
            wait_for(sign(params))
        except TimeoutError:
            note(params, "gave-up")
            raise
    return {"number": points["number"]}


def dies_after_a_sign(points: Block, bucket: Bucket, params: Params) -> Block:
    """Wait in the last bucket as above, and kill the process of the first call there."""
    died = Path(f"{params.log}.died")
    if bucket.index == bucket.count - 1 and not died.exists():
        wait_for(sign(params))
        died.touch()
        os._exit(9)
    return {"number": points["number"]}


def fails_last(points: Block, bucket: Bucket, params: Params) -> Block:
    """Fail in the last bucket until there is a file beside the log; on Spark, the other subtasks may need a while."""
    note(params, f"fails-{bucket.index:02d}")
    if bucket.index == bucket.count - 1 and not sign(params).exists():
        raise ZeroDivisionError("not yet")
    return {"number": points["number"]}


def sign(params: Params) -> Path:
    """Return the file that says: go on."""
    return Path(f"{params.log}.sign")


def wait_for(path: Path) -> None:
    """Wait for a file, not for ever."""
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"there is no {path}")
        time.sleep(0.01)


def other_columns(points: Block) -> Block:
    """Return what no other version of this operator did."""
    return {"number": points["number"].astype(float)}


def numbers(points: Block, params: Params, bucket: Bucket) -> Block:
    """Return a column, and note it."""
    if params.log:
        note(params, f"numbers-{bucket.index:02d}")
    return {"number": points["number"]}


def leaves_files(bucket: Bucket, scratch: str) -> Block:
    """Leave a file in the folder that it was given, and say what was there."""
    return leaves_a_file(scratch) | {"bucket": np.array([bucket.index])}


def leaves_a_file(scratch: str) -> dict[str, npt.NDArray[Any]]:
    """Leave a file in the folder that it was given, and say what was there."""
    folder = Path(scratch)
    found = len(list(folder.iterdir()))
    (folder / "left").touch()
    return {"scratch": np.array([scratch]), "files": np.array([found])}


def times() -> Block:
    """Return instants and durations in the units that numpy has and Spark has not."""
    return {
        "ns": np.array(["2024-07-01T12:00:00.000001"], "M8[ns]"),
        "s": np.array(["2024-07-01T12:00:00"], "M8[s]"),
        "for": np.array([5000], "m8[ns]"),
        "both": np.array([[1, 2]], "m8[ms]"),
    }


def times_of_buckets(bucket: Bucket) -> Block:
    """Return the same in the first bucket alone."""
    return {name: array[: 1 if bucket.index == 0 else 0] for name, array in times().items()}


def too_fine_times() -> Block:
    """Return a duration that no microseconds are."""
    return {"for": np.array([5], "m8[ns]")}


def unsigned() -> Block:
    """Return a type that Spark has not."""
    return {"number": np.arange(3), "count": np.arange(3, dtype=np.uint32)}


def short_floats(bucket: Bucket) -> Block:
    """Return another one, as arrays."""
    return {"bucket": np.array([bucket.index]), "x": np.ones((1, 2), dtype=np.float16)}


def given_back(given: Any) -> Any:
    """Return a DataFrame, or a block, as it is."""
    return given


def counted_at_once(given: Any) -> Any:
    """Count a DataFrame's rows in a job of its own, and return as many numbers."""
    return given.sparkSession.range(given.count())


def of_two(spark: Any) -> Any:
    """Return a DataFrame of nothing that is given."""
    return spark.range(2)


def frame_of_data(spark: Any) -> Any:
    """Give a DataFrame as a data stream."""
    return spark.range(0, 100, 1, 4).selectExpr("id AS number", "array(id * 0.5D, 1.0D) AS vector")


def squares(points: Any, params: Params) -> Any:
    """Square the numbers in Python, and note each row."""
    log = params.log

    def square(batches: Any) -> Any:
        for batch in batches:
            rows = batch.to_pylist()
            if log:
                for row in rows:
                    note(Params(log=log), str(row["number"]))
            yield pa.RecordBatch.from_pylist([{"number": r["number"], "square": r["number"] ** 2.0} for r in rows])

    return points.select("number").mapInArrow(square, "number long, square double")


def counted_by_a_job(given: Any, params: Params) -> Any:
    """Start a job that says that it has begun, and waits until it is told to go on."""
    log = params.log

    def wait(batches: Any) -> Any:
        for batch in batches:
            note(Params(log=log), "begun")
            while Path(log).exists():
                pass
            yield batch

    given.mapInArrow(wait, given.schema).count()
    return given


def odd(given: Any) -> Any:
    """Keep some rows."""
    return given.where("number % 2 = 1")


def summed(given: Any) -> Any:
    """Add up the squares: one row."""
    return given.selectExpr("sum(square) AS sum", "count(*) AS rows")


def added(given: Any) -> Any:
    """Add one to every number; the lineage grows with every call."""
    return given.selectExpr("number + 1 AS number")


def emptied(given: Any) -> Any:
    """Keep no row."""
    return given.where("false")


def with_nulls(given: Any) -> Any:
    """Give a column that no block can hold."""
    return given.selectExpr("nullif(number, 3) AS number")


def nested(given: Any) -> Any:
    """Give columns of every sort that only a DataFrame holds."""
    return given.selectExpr(
        "number",
        "nullif(number, 3) AS hole",
        "named_struct('a', number, 'b', array(number)) AS pair",
        "map('k', number) AS table",
        "CAST(number AS decimal(10, 2)) AS price",
        "timestamp_seconds(number) AS at",
        "date_from_unix_date(CAST(number AS int)) AS day",
        "CAST(CAST(number AS string) AS binary) AS bytes",
    )


def oddly_named(given: Any) -> Any:
    """Give columns whose names mean something to Spark, beside a struct with such a field."""
    return given.selectExpr(
        "number AS `a.b`",
        "named_struct('b', number + 1, 'c.d', 'x') AS a",
        "number + 2 AS `no``4`",
        "CAST(number AS string) AS `a b,;{}()=`",
    )


def plainly_odd(given: Any) -> Any:
    """The same without the struct, which no block can hold."""
    return oddly_named(given).drop("a")


def fails_in_spark(given: Any) -> Any:
    """Fail when the rows are computed."""
    return given.selectExpr("number", "assert_true(number < 50, 'number is too large') AS checked")


def fails_in_python(given: Any) -> Any:
    """Fail in a worker's Python."""

    def fail(batches: Any) -> Any:
        for _ in batches:
            raise LookupError("no such square")
        yield from ()

    return given.mapInArrow(fail, "number long")


def fails_in_analysis(given: Any) -> Any:
    """Name a column that is not there."""
    return given.select("cube")


def names_what_spark_says(given: Any) -> Any:
    """Name a column that is not there as Spark names the end of a job."""
    return given.select("INTERRUPTED_AT")


def says_what_spark_says(given: Any) -> Any:
    """Fail in a worker's Python in words that Spark has, too."""

    def fail(batches: Any) -> Any:
        for _ in batches:
            raise ValueError("[INTERRUPTED] at row 7: ExecutorLostFailure (FetchFailed, INVALID_HANDLE)")
        yield from ()

    return given.mapInArrow(fail, "number long")


def has_spark_say_it(given: Any) -> Any:
    """Fail in Spark in words that it has for other failures."""
    return given.selectExpr("number", "assert_true(number < 50, '[INTERRUPTED] FetchFailed') AS checked")


def exits_in_the_driver(given: Any) -> Any:
    """Refuse to go on, as a script would."""
    sys.exit("no licence")


def fails_in_the_driver(given: Any) -> Any:
    """Fail before there is a DataFrame."""
    raise AttributeError("'NoneType' object has no attribute 'select'")


def calls_what_java_has_not(given: Any) -> Any:
    """Call a method of Java that is not there."""
    return given._jdf.cube()


def connects_to_nobody(given: Any) -> Any:
    """Lose a connection of its own."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and listens to nobody
        socket.create_connection(nobody.getsockname())


def finds_a_torn_file(given: Any) -> Any:
    """Read a file of its own to an end that comes too early, while Spark asks for the rows."""

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise EOFError("the file is torn")

    return given.sparkSession.createDataFrame(rows(), "number long")


def returns_a_block(given: Any) -> Any:
    """Return what no transform may."""
    return {"x": np.zeros(1)}


def returns_a_column_twice(given: Any) -> Any:
    """Return a DataFrame that no file can hold."""
    return given.selectExpr("number", "number")


def joined(points: Any, value: Any, parts: Any) -> Any:
    """Take a data stream, a value and buckets as DataFrames."""
    return points.select("number").join(parts, "number").crossJoin(value)


def nothing() -> None:
    """Return no records."""


def fails_here() -> Block:
    """Fail in the driver."""
    raise KeyError("no such thing")
