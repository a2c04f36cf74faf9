"""Which operators of an iteration take which others bucket by bucket, and what is always there?"""

from __future__ import annotations

from typing import Any

from iteration_lib import Iteration, records
from iteration_lib.driver.topology import topology_of
from iteration_lib.model.source import RecordsSource
from iteration_lib.protocol.topology import Exchange, Input, Vertex

Block = dict[str, Any]  # Any: arrays of each column's own type

every = Iteration("every")


@every.data
def points() -> RecordsSource:
    return records(x=[1.0])


@every.map_buckets(finishes=True)
def scaled(points: Block) -> Block:
    return points


@every.variable
def centres(scaled: Block) -> Block:
    return scaled


@every.variable
def weights(scaled: Block) -> Block:
    return scaled


@every.map_buckets
def sums(points: Block, scaled: Block, centres: Block, weights: Block) -> Block:
    return {**points, **scaled, **centres, **weights}


@every.map_buckets(capture=False, operator_id="noisy")
def shaken(sums: Block) -> Block:
    return sums


@every.map_buckets(state="carry")
def shares(sums: Block, state: Block | None) -> tuple[Block, Block]:
    return sums, state or sums


@every.operator
def moved(shares: Block) -> Block:
    return shares


@every.map_buckets
def weighed(shaken: Block) -> Block:
    return shaken


every.feedback(centres=moved, weights=weighed)
TOTAL = 8


def narrow(operator_id: str) -> Input:
    return Input(operator_id=operator_id, exchange=Exchange.NARROW)


def wide(operator_id: str) -> Input:
    return Input(operator_id=operator_id, exchange=Exchange.WIDE)


def bucketed(operator_id: str, *inputs: Input, name: str | None = None) -> Vertex:
    return Vertex(operator_id=operator_id, name=name or operator_id, total=TOTAL, inputs=inputs, is_global=False)


def test_topology_has_every_operator_and_how_it_takes_its_inputs() -> None:
    """No data streams, and no hidden variables: neither is ever computed. A variable has the kind of its tail."""
    topology = topology_of(every.graph(), max_buckets=TOTAL)

    found = {vertex.operator_id: vertex for vertex in topology.vertices}
    assert {
        "scaled": Vertex(
            operator_id="scaled", name="scaled", total=TOTAL, finishes=True, is_global=False, is_per_epoch=False
        ),
        "centres": Vertex(operator_id="centres", name="centres", inputs=(wide("scaled"),), is_per_epoch=False),
        "weights": Vertex(
            operator_id="weights",
            name="weights",
            total=TOTAL,
            inputs=(narrow("scaled"),),
            is_global=False,
            is_per_epoch=False,
        ),
        "sums": bucketed("sums", narrow("scaled"), wide("centres"), narrow("weights")),
        "noisy": Vertex(
            operator_id="noisy",
            name="shaken",
            total=TOTAL,
            inputs=(narrow("sums"),),
            is_global=False,
            is_capturable=False,
        ),
        "shares": bucketed("shares", narrow("sums"), name="shares.call"),
        "shares.result": bucketed("shares.result", narrow("shares"), name="shares"),
        "shares.state-next": bucketed("shares.state-next", narrow("shares"), name="shares.state-next"),
        "moved": Vertex(operator_id="moved", name="moved", inputs=(wide("shares.result"),)),
        "weighed": Vertex(
            operator_id="weighed",
            name="weighed",
            total=TOTAL,
            inputs=(narrow("noisy"),),
            is_global=False,
            is_capturable=False,
        ),
    } == found


def test_order_is_that_of_running() -> None:
    order = [vertex.operator_id for vertex in topology_of(every.graph(), max_buckets=TOTAL).vertices]

    assert order.index("scaled") < order.index("sums") < order.index("shares") < order.index("shares.result")
    assert order.index("sums") < order.index("noisy") < order.index("weighed")
