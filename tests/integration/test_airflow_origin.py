"""From which checkpoint does a DAG run's run start? Called as Airflow calls the first task, on a real store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from iteration_lib.airflow import iteration_dag
from iteration_lib.airflow.chain import Action
from iteration_lib.airflow.operators import EpochsOperator, FinishRunOperator, OpenRunOperator
from iteration_lib.airflow.work import RunningEpochs
from iteration_lib.coordinator import Coordinator
from iteration_lib.model.definition import describe
from iteration_lib.model.iteration import Iteration
from iteration_lib.protocol.event import RunDeleted
from iteration_lib.protocol.status import RunStatus, StopKind
from iteration_lib.saving import save_run
from iteration_lib.stopping import request_stop
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import BranchRecord, RunRecord
from tests.iterations.drawn import by_spark, drawn
from tests.store_script import a_run, an_origin

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

REFERENCE = "tests.iterations.counted:counted"
EPOCHS = 3  # of each DAG run, in one task


@dataclass(kw_only=True)
class DagRun:
    """What Airflow gives a task of a DAG run that is one of several, one a day."""

    day: int
    before: DagRun | None = None
    logical_date: int | None = None
    opened: dict[str, object] | None = None
    state: str | None = "success"  # of its first task
    dag_id: str = "daily"
    task_id: str = "open_run"
    map_index: int = -1
    try_number: int = 1

    @property
    def run_id(self) -> str:
        return f"day {self.day}"

    def get_template_context(self) -> dict[str, object]:
        return {"dag_run": SimpleNamespace(logical_date=self.logical_date)}

    def get_task_states(self, *, run_ids: list[str], **_: object) -> dict[str, dict[str, str | None]]:
        return {run_id: {self.task_id: self.found(run_id).state} for run_id in run_ids}

    def get_previous_dagrun(self) -> DagRun | None:
        return self.before

    def get_previous_ti(self, *, logical_date: int | None) -> DagRun | None:
        return next(dag_run for dag_run in self.line() if dag_run.logical_date == logical_date).before

    def xcom_pull(self, *, task_ids: str, run_id: str) -> object:
        assert self.task_id == task_ids
        return self.found(run_id).opened

    def found(self, run_id: str) -> DagRun:
        return next(dag_run for dag_run in self.line() if dag_run.run_id == run_id)

    def line(self) -> Iterator[DagRun]:
        """Go back from this one to the first."""
        yield self
        if self.before is not None:
            yield from self.before.line()


@dataclass(kw_only=True)
class Daily:
    """A DAG whose runs follow each other, and its store."""

    store: PostgresStore
    folder: Path

    def open(self, dag_run: DagRun, *, start_from: str = "", run_key: str = "", **params: object) -> RunRecord:
        """Do what the first task does; returns the run."""
        values = {"log": str(self.folder / "log"), "max_epochs": EPOCHS, **params}
        operator = OpenRunOperator(
            task_id="open_run",
            reference=REFERENCE,
            run_key=run_key or f"daily/{dag_run.run_id}",
            run_params=values,
            start_from=start_from,
            longest=EPOCHS,
        )
        context: Any = {"ti": dag_run, "params": {}}
        dag_run.opened = operator.execute(context)
        return self.found(dag_run)

    def drive(self, dag_run: DagRun, *, end_epoch: int = EPOCHS) -> RunRecord:
        """Do what the task of the first epochs does."""
        self.run_task(dag_run, first_epoch=0, end_epoch=end_epoch)
        return self.found(dag_run)

    def run_task(self, dag_run: DagRun, *, first_epoch: int, end_epoch: int) -> Action:
        """Do what a task of the chain does."""
        owner = EpochsOperator(
            task_id=f"e{first_epoch:03d}",
            reference=REFERENCE,
            run_key=f"daily/{dag_run.run_id}",
            first_epoch=first_epoch,
            end_epoch=end_epoch,
            runner="local",
        )
        return RunningEpochs(owner, task_instance=dag_run).run()  # type: ignore[arg-type]  # what of Airflow's it needs

    def finish(self, dag_run: DagRun, *, connect_conn_id: str | None = None) -> RunRecord:
        """Do what the tasks of the epochs and the last one do."""
        self.drive(dag_run)
        last = FinishRunOperator(
            task_id="finish",
            reference=REFERENCE,
            run_key=f"daily/{dag_run.run_id}",
            opening_task_id="open_run",
            connect_conn_id=connect_conn_id,
        )
        last.execute({"ti": dag_run})  # type: ignore[typeddict-item]  # what of Airflow's it needs
        return self.found(dag_run)

    def found(self, dag_run: DagRun) -> RunRecord:
        run = self.store.find_run(f"daily/{dag_run.run_id}")
        assert run is not None
        return run

    def branch(self, dag_run: DagRun) -> BranchRecord | None:
        return self.store.find_branch(self.found(dag_run).run_id)

    def bodies(self) -> list[str]:
        """Return in which epochs the body ran."""
        return [line for line in (self.folder / "log").read_text().splitlines() if line.startswith("moved")]


@pytest.fixture
def daily(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daily]:
    monkeypatch.setenv("ITERATION_STORE_URL", store_url)
    monkeypatch.setenv("ITERATION_STATE_URI", str(tmp_path / "state"))
    with closing(PostgresStore(store_url)) as store:
        yield Daily(store=store, folder=tmp_path)
        delete_all(store)


def delete_all(store: PostgresStore) -> None:
    """Free the keys for the next test."""
    for day in range(10):
        run = store.find_run(f"daily/day {day}")
        if run is not None:
            Coordinator(store).apply(run.run_id, RunDeleted(deleted_by="test"))


def ended(daily: Daily, day: int = 0, **options: Any) -> DagRun:
    """Return a DAG run whose run has terminated."""
    dag_run = DagRun(day=day, logical_date=day)
    daily.open(dag_run, **options)
    daily.drive(dag_run)
    return dag_run


def after(dag_run: DagRun, *, state: str = "success") -> DagRun:
    """Return the DAG run of the next day."""
    return DagRun(day=dag_run.day + 1, before=dag_run, logical_date=dag_run.day + 1, state=state)


def test_run_that_starts_from_a_checkpoint_has_epochs_of_its_own_and_they_are_the_chains(daily: Daily) -> None:
    """The task that owns the chain's first three epochs runs epochs 2 to 4."""
    origin = daily.found(ended(daily))
    second = DagRun(day=1)

    opened = daily.open(second, start_from=f"{origin.run_key}@2")
    driven = daily.drive(second)

    branch = daily.branch(second)
    assert branch is not None
    assert (origin.run_id, 2, 1, "daily/day 1") == (
        branch.origin_run_id,
        branch.origin_checkpoint_id,
        branch.epoch,
        branch.branched_by,
    )
    assert (5, {"max_epochs": 5}) == (opened.params["max_epochs"], {"max_epochs": opened.max_epochs})
    assert [f"moved {epoch}" for epoch in (0, 1, 2, 2, 3, 4)] == daily.bodies()
    assert (4, "MAX_EPOCHS") == (driven.last_durable_epoch, driven.terminated_by.name if driven.terminated_by else None)


def test_task_of_a_branch_stops_behind_its_own_epochs(daily: Daily) -> None:
    origin = daily.found(ended(daily))
    second = DagRun(day=1)
    daily.open(second, start_from=origin.run_key)

    driven = daily.drive(second, end_epoch=1)

    assert (3, None) == (driven.last_durable_epoch, driven.terminated_by)


def test_task_behind_the_end_of_a_branch_has_nothing_to_do(daily: Daily) -> None:
    """Its place is behind the branch's third epoch, though the branch's last epoch has a greater number."""
    second = DagRun(day=1)
    daily.open(second, start_from=daily.found(ended(daily)).run_key)
    daily.drive(second)

    actions = [daily.run_task(second, first_epoch=place, end_epoch=place + 1) for place in (1, 2, 3)]

    assert [Action.PASS, Action.STOP, Action.SKIP] == actions


def test_run_that_starts_from_a_savepoint_or_a_newest_checkpoint_is_the_same_to_the_bit(daily: Daily) -> None:
    first = ended(daily)
    saved = save_run(daily.store, daily.found(first)).savepoint
    from_savepoint, from_newest = DagRun(day=1), DagRun(day=2)

    daily.open(from_savepoint, start_from=saved.location.uri)
    daily.open(from_newest, start_from=daily.found(first).run_key)
    digests = [daily.finish(dag_run).state_digest for dag_run in (from_savepoint, from_newest)]

    assert digests[0] == digests[1]
    assert None is not digests[0]


@pytest.mark.parametrize("start_from", ["daily/day 0", "previous"])
def test_cleared_first_task_finds_its_branch_again_though_its_origin_is_gone(daily: Daily, start_from: str) -> None:
    first = ended(daily)
    second = after(first)
    opened = daily.open(second, start_from=start_from)
    daily.drive(second)
    Coordinator(daily.store).apply(daily.found(first).run_id, RunDeleted(deleted_by="ann"))
    second.before = DagRun(day=9)  # made since, for a date between the two

    again = daily.open(second, start_from=start_from)

    assert (opened.run_id, opened.params) == (again.run_id, again.params)


@pytest.mark.parametrize("start_from", ["daily/day 0", "previous"])
def test_retried_first_task_finds_its_branch_again_before_it_has_run(daily: Daily, start_from: str) -> None:
    second = after(ended(daily))
    opened = daily.open(second, start_from=start_from)

    again = daily.open(second, start_from=start_from)

    assert opened == again


def test_each_dag_run_starts_from_what_the_one_before_it_left_and_the_first_from_nothing(daily: Daily) -> None:
    first = ended(daily, start_from="previous")
    second = after(first)
    daily.open(second, start_from="previous")
    daily.drive(second)
    third = after(second)

    daily.open(third, start_from="previous")

    branches = [daily.branch(dag_run) for dag_run in (first, second, third)]
    assert [None, (daily.found(first).run_id, 3, 2), (daily.found(second).run_id, 3, 5)] == [
        (branch.origin_run_id, branch.origin_checkpoint_id, branch.epoch) if branch is not None else None
        for branch in branches
    ]


def test_dag_run_that_starts_from_the_previous_one_reads_its_data_anew(daily: Daily) -> None:
    second = after(ended(daily))

    daily.open(second, start_from="previous")

    branch = daily.branch(second)
    assert branch is not None
    assert () == tuple(branch.keeps)


def test_run_that_a_person_stopped_leaves_what_it_has(daily: Daily) -> None:
    first = DagRun(day=0, logical_date=0)
    daily.open(first)
    daily.drive(first, end_epoch=1)
    request_stop(daily.store, daily.found(first), kind=StopKind.STOP, by="ann")
    second = after(first)

    daily.open(second, start_from="previous")

    branch = daily.branch(second)
    assert (daily.found(first).run_id, 0) == ((branch.origin_run_id, branch.epoch) if branch is not None else None)


def test_dag_runs_whose_iteration_a_branch_of_the_dag_skipped_are_looked_past(daily: Daily) -> None:
    first = ended(daily)
    fourth = after(after(after(first, state="skipped"), state="skipped"))

    daily.open(fourth, start_from="previous")

    branch = daily.branch(fourth)
    assert (daily.found(first).run_id, 2) == ((branch.origin_run_id, branch.epoch) if branch is not None else None)


def test_dag_run_before_which_all_were_skipped_starts_from_nothing(daily: Daily) -> None:
    second = after(DagRun(day=0, logical_date=0, state="skipped"))

    daily.open(second, start_from="previous")

    assert None is daily.branch(second)


def test_dag_run_that_failed_is_refused_also_behind_one_that_was_skipped(daily: Daily) -> None:
    """A branch skips a task without waiting for the DAG run before."""
    failed = after(ended(daily), state="failed")

    message = refusal(daily, after(after(failed, state="skipped")), start_from="previous")

    assert message.startswith("the DAG run day 1 before this one has opened no run")


def test_looking_for_a_dag_run_that_was_not_skipped_has_an_end(daily: Daily) -> None:
    without_end = DagRun(day=0, logical_date=0, state="skipped")
    without_end.before = without_end

    message = refusal(daily, without_end, start_from="previous")

    assert message.startswith("of the 1000 DAG runs before this one none has opened a run")


@pytest.mark.timeout(30)
def test_connect_server_that_is_gone_does_not_hold_a_run_that_is_published(
    daily: Daily, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's client would try for ten minutes."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_WARM", '{"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1, "password": "hidden-word"}'
    )
    only = DagRun(day=0, logical_date=0)
    daily.open(only)

    finished = daily.finish(only, connect_conn_id="warm")

    assert RunStatus.FINISHED is finished.status
    assert f"event=session_left run_id={finished.run_id} error=no Spark session at sc://127.0.0.1:1 (" in caplog.text
    assert "hidden-word" not in caplog.text


def refusal(daily: Daily, dag_run: DagRun, **options: Any) -> str:
    """Return the sentence with which the first task fails for good, having made no run."""
    with pytest.raises(AirflowFailException) as refused:
        daily.open(dag_run, **options)
    assert daily.store.find_run(f"daily/{dag_run.run_id}") is None
    return str(refused.value)


def test_predecessor_that_has_not_terminated_is_refused(daily: Daily) -> None:
    first = DagRun(day=0, logical_date=0)
    daily.open(first)
    daily.drive(first, end_epoch=1)

    message = refusal(daily, after(first), start_from="previous")

    assert message.startswith(
        "run 'daily/day 0' of the DAG run day 0 before this one is RUNNING with 1 durable epochs and has"
    )
    assert message.endswith("or delete that DAG run, so that this one has another predecessor; then clear this task")


def test_predecessor_that_never_opened_a_run_is_refused(daily: Daily) -> None:
    """Somebody marked it as a success."""
    message = refusal(daily, after(DagRun(day=0)), start_from="previous")

    assert message.startswith("the DAG run day 0 before this one has opened no run; clear it and let it end, or delete")


@pytest.mark.parametrize("state", ["success", None], ids=["a task", "no task"])
def test_predecessor_of_which_airflow_knows_no_run_any_more_is_found_in_the_store(
    daily: Daily, state: str | None
) -> None:
    """`airflow db clean` has removed what it has told, at times with the task; it keeps the last DAG run."""
    first = ended(daily)
    first.opened, first.state = None, state

    daily.open(after(first), start_from="previous")

    branch = daily.branch(after(first))
    assert (daily.found(first).run_id, 3) == (branch and branch.origin_run_id, branch and branch.origin_checkpoint_id)


def test_predecessor_of_which_nobody_knows_the_key_is_refused(daily: Daily) -> None:
    first = ended(daily)
    first.opened = None

    message = refusal(daily, after(first), start_from="previous", run_key="my own")

    assert message.startswith(
        "the DAG run day 0 before this one has opened no run that Airflow still knows, and its key is not to be told "
        "from this one's; clear it and let it end, or delete that DAG run"
    )


def test_dag_run_without_a_logical_date_has_no_predecessor(daily: Daily) -> None:
    message = refusal(daily, DagRun(day=1), start_from="previous")

    assert message.startswith("start_from is 'previous', but this DAG run has no logical date and so no predecessor")


@pytest.mark.parametrize(
    ("start_from", "message"),
    [
        (
            "nobody",
            "no run has the id or the key 'nobody', and it is no folder with a savepoint.json; `iteration list`",
        ),
        ("nobody@1", "no run has the id or the key 'nobody'; `iteration list` shows what there is"),
        ("daily/day 0@7", "run 'daily/day 0' has no such checkpoint; it has: 1 (epoch 0), 2 (epoch 1), 3 (epoch 2)"),
        ("/no/such/savepoint", "no run has the id or the key '/no/such/savepoint', and it is no folder with a"),
    ],
)
def test_start_that_is_not_there_fails_the_first_task_for_good(daily: Daily, start_from: str, message: str) -> None:
    ended(daily)

    assert refusal(daily, DagRun(day=1), start_from=start_from).startswith(message)


def open_drawn(dag_run: DagRun, origin: RunRecord, **options: Any) -> None:
    """Do what the first task does that starts a run from the first checkpoint of another one."""
    OpenRunOperator(
        task_id="open_run",
        reference=origin.reference,
        run_key=f"daily/{dag_run.run_id}",
        run_params={"desk": "d", "max_epochs": 2, **options.pop("params", {})},
        start_from=f"{origin.run_key}@1",
        **options,
    ).execute({"ti": dag_run, "params": {}})  # type: ignore[arg-type]  # what of Airflow's it needs


def origin_drawn(daily: Daily, iteration: Iteration) -> RunRecord:
    """Return a run whose data streams take parameters."""
    run = a_run(
        reference=f"tests.iterations.drawn:{iteration.name}",
        definition=describe(iteration.graph()),
        params={"desk": "d", "scale": 1.0, "max_epochs": 3},
    )
    an_origin(daily.store, run, epoch=1)
    found = daily.store.find_run(run.run_id)
    assert found is not None
    return found


def test_data_of_which_nobody_can_tell_is_asked_about_in_airflows_words_and_then_kept(daily: Daily) -> None:
    origin, dag_run = origin_drawn(daily, by_spark), DagRun(day=1)

    with pytest.raises(AirflowFailException) as refused:
        open_drawn(dag_run, origin, params={"scale": 7.0})
    open_drawn(dag_run, origin, params={"scale": 7.0}, start_data="kept")

    assert "whether it reads anew (--new-data, in Airflow start_data: new) or what" in str(refused.value)
    branch = daily.branch(dag_run)
    assert branch is not None
    assert ("seed_rows", "table") == branch.keeps


@pytest.mark.parametrize(
    ("start_data", "keeps"), [("", ("mean_row", "rows")), ("kept", ("mean_row", "rows")), ("new", ())]
)
def test_data_is_read_anew_where_a_person_says_so(daily: Daily, start_data: str, keeps: tuple[str, ...]) -> None:
    dag_run = DagRun(day=1)

    open_drawn(dag_run, origin_drawn(daily, drawn), start_data=start_data)

    branch = daily.branch(dag_run)
    assert branch is not None
    assert keeps == branch.keeps


def test_word_about_data_that_nobody_knows_is_refused(daily: Daily) -> None:
    with pytest.raises(AirflowFailException, match="start_data is 'fresh'; choose new or kept, or leave it empty"):
        open_drawn(DagRun(day=1), origin_drawn(daily, drawn), start_data="fresh")


def test_savepoint_a_file_of_which_is_gone_fails_the_first_task_for_good_and_is_named(daily: Daily) -> None:
    savepoint = save_run(daily.store, daily.found(ended(daily))).savepoint
    lost = next(Path(savepoint.location.uri.removeprefix("file://")).rglob("*.arrow"))
    lost.unlink()

    assert str(lost) in refusal(daily, DagRun(day=1), start_from=savepoint.location.uri)


def test_checkpoint_of_another_iteration_is_refused(daily: Daily) -> None:
    first = ended(daily)
    operator = OpenRunOperator(
        task_id="open_run",
        reference="tests.iterations.told:told",
        run_key="daily/day 1",
        run_params={"max_epochs": 3},
        start_from=daily.found(first).run_key,
    )

    with pytest.raises(
        AirflowFailException, match=f"it is of the iteration {REFERENCE}, and the run is to be one of t"
    ):
        operator.execute({"ti": DagRun(day=1), "params": {}})


def test_key_of_a_run_that_started_from_nothing_is_no_branch(daily: Daily) -> None:
    ended(daily, day=0)
    ended(daily, day=1)

    with pytest.raises(AirflowFailException, match="it did not start from this checkpoint"):
        daily.open(DagRun(day=1), start_from="daily/day 0")


def test_first_task_of_a_dag_takes_its_form_and_the_rendered_templates(daily: Daily) -> None:
    fields = {"log": "{{ folder }}", "seed": Param(type="integer")}  # whoever triggers it has to give the seed
    dag = iteration_dag(REFERENCE, params=fields, max_epochs=EPOCHS, run_key="daily/day 5")
    opening = dag.get_task("open_run")
    opening.run_params, opening.start_from = {"log": str(daily.folder / "log")}, ""
    form = {"log": "{{ folder }}", "seed": 7, "max_epochs": 2, "start_from": None}

    opening.execute({"ti": DagRun(day=5), "dag": dag, "params": form})

    assert {
        "log": str(daily.folder / "log"),
        "seed": 7,
        "max_epochs": 2,
        "latch": "",
        "hold_epoch": 5,
    } == dict(daily.found(DagRun(day=5)).params)
