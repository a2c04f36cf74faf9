"""Does epoch 0 see one and the same first value of a variable, whoever goes on with it?

No checkpoint holds a first value. Were it computed again beside edges that were computed from the one before, operators
of one epoch would see two.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driven_in_memory import SOURCE, InMemory

# The variable is another one each time that it is computed; the epoch feeds back what `sums` and `moved` saw of it.
UNSTEADY = (
    SOURCE.replace("epoch == 1", "epoch == 0")
    .replace("max_epochs: int = 3", "max_epochs: int = 1")
    .replace(
        'def centre():\n    return {"at": np.zeros(1)}',
        "def centre(params):\n"
        '    calls = Path(params.broken).with_name("calls")\n'
        '    calls.write_text(calls.read_text() + "x" if calls.exists() else "x")\n'
        '    return {"at": np.full(1, float(len(calls.read_text())))}',
    )
    .replace('np.array([scaled["at"].sum() - centre["at"][0]])', 'centre["at"].copy()')
    .replace("def moved(sums, params", "def moved(sums, centre, params")
    .replace('{"at": sums["sum"].sum(keepdims=True)}', '{"at": np.append(sums["sum"], centre["at"])}')
)


@pytest.mark.parametrize("alignment_timeout_seconds", [0.0, None])
def test_operators_of_a_resumed_epoch_0_see_one_first_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alignment_timeout_seconds: float | None
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory.begin(tmp_path, UNSTEADY)
    bench.drive_until_broken(alignment_timeout_seconds=alignment_timeout_seconds)

    bench.mend()
    bench.drive()

    calls = len((tmp_path / "calls").read_text())
    assert (1 if alignment_timeout_seconds is not None else 2) == calls
    assert {float(calls)} == set(bench.outputs()["centre"]["at"].to_pylist())


def test_sigterm_in_epoch_0_keeps_the_first_value_with_what_was_computed_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no alignment timeout keeps anything: the process is told to end while `moved` runs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    bench = InMemory(tmp_path)
    bench.write_input()
    told = "from iteration_lib.interrupt import ToldToEnd; raise ToldToEnd"
    bench.write_iteration(UNSTEADY.replace('raise RuntimeError("broken")', told))
    bench.open()
    (tmp_path / "broken").touch()
    with pytest.raises(SystemExit):
        bench.drive(alignment_timeout_seconds=None)

    bench.mend()
    bench.drive(alignment_timeout_seconds=None)

    assert {"centre", "sums"} == {part.operator_id for part in bench.store.list_parts(bench.run.run_id)}
    assert {1.0} == set(bench.outputs()["centre"]["at"].to_pylist())
