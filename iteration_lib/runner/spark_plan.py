"""How does a stream of buckets, and all that it is computed from, become the plan of one job?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from iteration_lib.model.operator import Kind
from iteration_lib.runner.calling import check_one_schema
from iteration_lib.runner.part_header import PartHeader
from iteration_lib.runner.plan import CallNode, DataNode, Node
from iteration_lib.runner.seam import Stream
from iteration_lib.runner.spark_streams import BucketStream, DataStream, ValueStream
from iteration_lib.state.streams import read_schema


class StreamPlan:
    """Builds the tree, with one node per stream."""

    def __init__(self, max_buckets: int) -> None:
        self._max_buckets = max_buckets
        self._nodes: dict[int, Node] = {}
        self._numbers = count()
        self._operators: dict[int, str] = {}
        self._shared: list[BucketStream] = []

    def node(self, stream: Stream) -> Node:
        """Return the node of a stream of data or of buckets."""
        if id(stream) not in self._nodes:
            self._nodes[id(stream)] = self._make(stream)
        return self._nodes[id(stream)]

    def shared_in(self, stream: BucketStream) -> list[BucketStream]:
        """Return what a stream is computed from, is to be computed itself, and will be used by others too."""
        self.node(stream)
        return [found for found in self._shared if found is not stream]

    def check_columns(self, headers: Sequence[PartHeader]) -> None:
        """Check that each call gave the same columns in every part; raises OperatorResultError."""
        for number, operator_id in self._operators.items():
            first = dict(sorted(header.calls[number] for header in headers))
            check_one_schema(operator_id, {bucket: read_schema(schema) for bucket, schema in first.items()})

    def _make(self, stream: Stream) -> Node:
        if isinstance(stream, DataStream):
            return DataNode(data=stream.cached)
        if not isinstance(stream, BucketStream):
            raise TypeError(f"{type(stream).__name__} is not a stream of buckets")
        if stream.parts is not None:
            return stream.parts
        if stream.call is None:
            raise TypeError("a stream of buckets is a call or has parts")
        if stream.is_shared:
            self._shared.append(stream)
        number, call = next(self._numbers), stream.call
        self._operators[number] = call.operator.operator_id
        return CallNode(
            number=number,
            operator=call.operator,
            buckets={n: self.node(s) for n, s in call.inputs.items() if s.kind in (Kind.DATA, Kind.BUCKETS)},
            values={n: s.batch for n, s in call.inputs.items() if isinstance(s, ValueStream)},
            params=call.params,
            epoch=call.epoch,
            count=self._max_buckets,
            scratch=stream.scratch,
        )
