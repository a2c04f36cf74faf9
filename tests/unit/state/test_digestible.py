"""Is a column that has no digest named before anybody needs one?"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from iteration_lib.state.block import ColumnError
from iteration_lib.state.digestible import check_digestible


@pytest.mark.parametrize(
    "inside", [pa.list_view(pa.int64()), pa.run_end_encoded(pa.int32(), pa.string()), pa.list_(pa.int64(), 0)], ids=str
)
def test_column_that_has_no_digest_is_named_however_deep_it_lies(inside: pa.DataType) -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.large_list(pa.struct([("f", inside)])))])

    with pytest.raises(ColumnError, match=f"^column 'x' holds {re.escape(str(inside))}, which has no digest"):
        check_digestible(schema)
