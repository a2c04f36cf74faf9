"""Is a part's file read once, however many of its buckets a task takes?"""

from __future__ import annotations

import numpy as np
import pytest

from iteration_lib.runner.plan import Evaluation, Part, PartsNode
from iteration_lib.state.block import batch_of
from iteration_lib.state.location import StateLocation
from iteration_lib.state.saved import FileFormat
from iteration_lib.state.streams import dump_schema, save_batches


@pytest.mark.parametrize("file_format", FileFormat)
def test_evaluation_fetches_a_file_once_for_all_of_its_buckets(file_format: FileFormat) -> None:
    location = StateLocation("memory://plan/run")
    first, second = batch_of({"x": np.arange(3)}), batch_of({"x": np.arange(2)})
    file = save_batches(
        location, f"part-{file_format.value}", [first, second], file_format=file_format, buckets=range(2)
    )
    part = Part(buckets=range(2), rows=(3, 2), batches=None, file=file)
    node = PartsNode(location=location, schema=dump_schema(first.schema), format=file_format, parts=(part,))
    evaluation = Evaluation()

    assert [first] == evaluation.buckets([node], 0)
    location.remove(file.path)
    assert [second] == evaluation.buckets([node], 1)
