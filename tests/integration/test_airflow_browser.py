"""What does somebody see and do in Airflow's UI? In a real Chromium, light and dark; it can take the docs' pictures."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, FrameLocator, Locator, Page, Route, expect

from iteration_lib.coordinator import Coordinator
from iteration_lib.protocol.state import FailedOperator
from iteration_lib.protocol.status import AttemptOutcome, RunStatus
from iteration_lib.savepoint import open_savepoint
from iteration_lib.store.postgres import PostgresStore
from iteration_lib.store.record import NewRun
from tests.failover.driven import PATIENCE_SECONDS
from tests.fixture.airflow import BASE_PATH, AirflowSite, DagRun, wait_for
from tests.protocol_script import Sender, claim, part
from tests.size import nightly
from tests.store_script import a_run, an_origin, new_family, origin_of

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.browser]

DAG_ID = "counting_retried"
POLICY = "Content Security Policy"
TRIGGERS = "**/api/v2/dags/*/dagRuns"
DOUBT = f"A run may have been started all the same: look at the runs of {DAG_ID} before you start it again."
PICTURES_VARIABLE = "ITERATION_TEST_PICTURES"  # a folder, such as docs/pictures, that keeps what the tests see
Theme = Literal["light", "dark"]
Colours = Mapping[Theme, str]
FINISHED: Colours = {"light": "rgb(21, 128, 61)", "dark": "rgb(74, 222, 128)"}
FAILED: Colours = {"light": "rgb(185, 28, 28)", "dark": "rgb(248, 113, 113)"}
RUNNING: Colours = {"light": "rgb(29, 78, 216)", "dark": "rgb(147, 197, 253)"}
LINK = RUNNING
WANTED: Colours = {"light": "rgb(254, 240, 138)", "dark": "rgb(113, 63, 18)"}
CELL_COLOURS = {
    "light": {
        "open": "rgb(220, 233, 250)",
        "run": "rgb(134, 183, 242)",
        "skipped": "rgb(217, 217, 222)",
        "edge": "rgb(240, 185, 91)",
        "restored": "rgb(88, 180, 124)",
        "failed": "rgb(185, 28, 28)",
    },
    "dark": {
        "open": "rgb(39, 69, 107)",
        "run": "rgb(47, 108, 179)",
        "skipped": "rgb(74, 74, 82)",
        "edge": "rgb(176, 122, 31)",
        "restored": "rgb(47, 138, 85)",
        "failed": "rgb(248, 113, 113)",
    },
}
Open = Callable[..., Page]

acts_in_either = pytest.mark.parametrize(
    "theme",
    ["light", pytest.param("dark", marks=nightly("what it does is the same in the other theme"))],
    indirect=True,
)


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> Theme:
    return request.param


@pytest.fixture
def open_page(airflow: AirflowSite, chromium: Browser) -> Iterator[Open]:
    """Open a page of Airflow's as somebody who is logged in; what a page of ours complains of fails the test."""
    complaints: list[str] = []
    pages: list[Page] = []

    def opened(path: str, *, user: str = "admin", theme: Theme = "light") -> Page:
        page = chromium.new_page(color_scheme=theme, viewport={"width": 1360, "height": 900})
        pages.append(page)
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        session = {"name": "_token", "value": airflow.processes.api(user).token, "url": airflow.processes.url}
        page.context.add_cookies([session])
        page.on("console", lambda said: complaints.append(said.text) if POLICY in said.text else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{airflow.processes.url}/{path}")
        return page

    yield opened
    for page in pages:
        page.close()
    assert [] == complaints


@pytest.fixture(scope="module")
def ended(airflow: AirflowSite, tmp_path_factory: pytest.TempPathFactory) -> DagRun:
    """A run of seven epochs in two tasks; the second one fails once, in epoch 5."""
    trace = tmp_path_factory.mktemp("trace")
    dag_run_id = airflow.trigger(DAG_ID, trace=str(trace), until=6, fails_in=5)
    attempts = functools.partial(airflow.attempts, f"{DAG_ID}/{dag_run_id}")
    wait_for(lambda: any(known.was_cut_short for known in attempts()) or None, what="an attempt that fails")
    (trace / "mended").touch()
    return airflow.wait(DAG_ID, dag_run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A run with a checkpoint of each epoch from `begins` on."""

    run: NewRun
    begins: int
    losses: list[float]


@pytest.fixture(scope="module")
def family_of_runs(airflow: AirflowSite) -> tuple[str, ...]:
    """Runs that somebody might have trained, but the first each from a checkpoint of another one."""
    baseline = train(airflow.store, "baseline", rate=0.75, epochs=24)
    slower = train(airflow.store, "slower", rate=0.85, epochs=14, origin=(baseline, 8))
    train(airflow.store, "faster", rate=0.6, epochs=10, origin=(baseline, 6))
    train(airflow.store, "slower-still", rate=0.93, epochs=8, origin=(slower, 5), is_live=True)
    return ("baseline", "slower", "slower-still", "faster")


@pytest.fixture(scope="module")
def long(airflow: AirflowSite) -> Trained:
    """A run with more epochs than a table shows."""
    return train(airflow.store, "long", rate=0.99, epochs=250)


def train(
    store: PostgresStore,
    name: str,
    *,
    rate: float,
    epochs: int,
    origin: tuple[Trained, int] | None = None,
    is_live: bool = False,
) -> Trained:
    """Add a run of the DAG and drive it; its loss falls by a rate, from where its origin's was."""
    begins, loss, came_from = 0, 100.0, None
    if origin is not None:
        parent, checkpoint_id = origin
        begins, loss = parent.begins + checkpoint_id, parent.losses[checkpoint_id - 1]
        came_from = origin_of(parent.run, checkpoint_id=checkpoint_id, epoch=begins - 1)
    run = a_run(f"{DAG_ID}/{name}", max_epochs=40 if is_live else begins + epochs, reference="my_team.net:net")
    assert store.add_run(run, came_from)
    coordinator, one = Coordinator(store), Sender(1, 1, new_family())
    coordinator.apply(run.run_id, claim(family=one.family))
    losses = [loss * rate ** (number + 1) + 1 for number in range(epochs)]
    for number, value in enumerate(losses):
        epoch = begins + number
        coordinator.apply(run.run_id, one.opens(epoch), one.reports(epoch, loss=value), one.triggers(epoch))
        coordinator.apply(run.run_id, one.completes(number + 1))
    ending = one.ends(AttemptOutcome.RELEASED)
    coordinator.apply(run.run_id, *([ending] if is_live else [one.publishes(), ending]))
    return Trained(run=run, begins=begins, losses=losses)


def test_page_of_all_runs_shows_branches_as_a_tree_and_compares_metrics(
    open_page: Open, family_of_runs: tuple[str, ...], theme: Theme
) -> None:
    page = open_page("plugin/iterations", theme=theme)
    runs = framed(page)

    runs.get_by_label("DAG").select_option(DAG_ID)
    runs.get_by_label("Name").fill(f"{DAG_ID}/")
    runs.get_by_role("button", name="Show").click()
    expect(runs.get_by_label("Name")).to_have_attribute("value", f"{DAG_ID}/")  # not in the page that is left
    for name in ("baseline", "slower", "faster"):
        runs.get_by_label(f"compare {name}", exact=True).check()
    runs.get_by_role("button", name="Compare the chosen").click()

    expect(runs.locator("svg path.line")).to_have_count(3)
    expect(runs.locator("figcaption")).to_have_text(["loss"])
    expect(runs.get_by_label("Name")).to_have_value(f"{DAG_ID}/")
    listed = [row for row in runs.locator("tbody tr").all() if row.locator("a").count()]
    shown = [(row.locator(".branch").count(), row.locator("a").inner_text()) for row in listed]
    assert list(zip((0, 1, 2, 1), family_of_runs, strict=True)) == [row for row in shown if row[1] in family_of_runs]
    take_picture(page, f"runs-{theme}")


def test_tab_shows_a_run_with_what_may_be_done(open_page: Open, ended: DagRun, theme: Theme) -> None:
    page = open_page(tab_of(ended), user="user", theme=theme)

    run = framed(page)

    expect(run.get_by_role("heading", name="FINISHED")).to_be_visible()
    expect(run.locator(".status")).to_have_css("color", FINISHED[theme])
    expect(run.locator("svg path.line")).to_have_count(1)
    expect(run.locator("svg .mark title")).to_have_text(["attempt 3 began again with epoch 5"])
    expect(run.get_by_role("button", name="Start from here")).not_to_have_count(0)
    run.locator("dl").evaluate("folders => folders.remove()")  # those of this machine are none of the docs' business
    page.set_viewport_size({"width": 1360, "height": 1700})  # with the checkpoints and the attempts
    take_picture(page, f"run-{theme}")


def test_grid_has_a_colour_for_whatever_became_of_an_operator(
    airflow: AirflowSite, open_page: Open, theme: Theme
) -> None:
    run, family = a_run(f"{DAG_ID}/cells-{theme}"), new_family()
    one, two = Sender(1, 1, family), Sender(2, 2, family)
    assert airflow.store.add_run(run)
    failed = FailedOperator(operator_id="x", epoch=3)
    for events in (
        (claim(1, family=family), one.finishes("scaled"), *one.passes(0, 1)),
        (one.opens(1), one.switches(1), one.marks(1, part("x")), one.fails()),
        (claim(2, family=family), two.opens(1), two.reports(1), two.triggers(1), two.completes(2)),
        (two.opens(2), two.switches(2), two.marks(2, part("x")), two.reports(2), two.triggers(2), two.completes(3)),
        (two.opens(3), two.fails("told to fail", failed=failed)),
    ):
        Coordinator(airflow.store).apply(run.run_id, *events)

    grid = framed(open_page(f"dags/{DAG_ID}/runs/cells-{theme}/plugin/iteration", theme=theme)).locator("table.grid")

    expect(grid).to_be_visible()
    rows = [row.locator("td span") for row in grid.locator("tr:has(span)").all()]
    shown = [[cell.get_attribute("class") for cell in row.all()] for row in rows]
    assert [
        ["run", "skipped", "skipped", "skipped"],
        ["run", "restored", "edge", "failed"],
        ["run", "run", "run", "open"],
        ["run", "run", "run", "open"],
    ] == shown
    cells = {str(cell.get_attribute("class")): cell for row in rows for cell in row.all()}
    colours = {name: cell.evaluate("cell => getComputedStyle(cell).backgroundColor") for name, cell in cells.items()}
    assert CELL_COLOURS[theme] == colours


def test_viewer_sees_the_tab_and_no_button(open_page: Open, ended: DagRun) -> None:
    page = open_page(tab_of(ended), user="viewer")

    run = framed(page)

    expect(run.get_by_role("heading", name="FINISHED")).to_be_visible()
    expect_themed(page, run.locator(".status"), FINISHED)
    expect(run.get_by_role("button")).to_have_count(0)


@acts_in_either
def test_run_is_started_from_a_checkpoint_with_other_parameters(
    airflow: AirflowSite, open_page: Open, ended: DagRun, theme: Theme
) -> None:
    before = dag_runs(airflow)
    page = open_page(tab_of(ended), user="user", theme=theme)
    run = framed(page)
    start = run.get_by_role("button", name="Start from here")
    checkpoint_id = int(run.get_by_role("row").filter(has=start).first.locator("td").first.inner_text())

    start.first.click()
    run.get_by_label("until").fill("7")
    trace = run.get_by_label("trace")
    folder = trace.input_value()
    trace.fill("/data/trace")
    take_picture(page, f"start-{theme}")
    trace.fill(folder)
    run.get_by_role("button", name="Start", exact=True).click()

    wait_for(lambda: dag_runs(airflow).keys() - before.keys() or None, what="the new DAG run")
    (dag_run_id,) = dag_runs(airflow).keys() - before.keys()
    conf = dag_runs(airflow)[dag_run_id]
    assert f"{ended.run_key}@{checkpoint_id}" == conf["start_from"]
    assert (7, 8, 5) == (conf["until"], conf["max_epochs"], conf["fails_in"])
    inner = page.locator("iframe").element_handle().content_frame()
    assert inner is not None
    inner.wait_for_url(lambda url: unquote(url).endswith(f"/runs/{dag_run_id}"))
    airflow.wait(DAG_ID, dag_run_id)
    run.get_by_role("button", name="Start from here").first.click()
    expect(run.get_by_label("max_epochs")).to_have_value("8")  # which the run counts from epoch 0 on


def test_airflows_own_form_has_every_parameter_and_the_help_that_it_has(airflow: AirflowSite, open_page: Open) -> None:
    """The DAG's file says what `until` does, and we what max_epochs and the two that say how a run starts do."""
    params = airflow.api.call("GET", f"dags/{DAG_ID}/details")["params"]
    page = open_page(f"dags/{DAG_ID}", user="user")

    page.get_by_role("button", name="Trigger").first.click()

    assert {"trace", "until", "max_epochs", "fails_in", "holds_in", "start_from", "start_data"} == params.keys()
    for name in params:
        expect(page.locator(f"[id='element_{name}'], [name='element_{name}']")).not_to_have_count(0)
    helped = {name: param["description"] for name, param in params.items() if param["description"]}
    assert {"until", "max_epochs", "start_from", "start_data"} == helped.keys()
    for said in helped.values():
        expect(page.get_by_text(said)).to_be_visible()


def test_form_says_what_airflow_refuses(airflow: AirflowSite, open_page: Open, ended: DagRun) -> None:
    before = dag_runs(airflow)
    page = open_page(tab_of(ended), user="user")
    run = framed(page)

    run.get_by_role("button", name="Start from here").first.click()
    run.get_by_label("max_epochs").fill("1000")
    run.get_by_role("button", name="Start", exact=True).click()

    expect(run.get_by_role("alert")).to_contain_text("max_epochs")
    expect(run.get_by_role("alert")).not_to_contain_text(DOUBT)
    expect_themed(page, run.get_by_role("alert"), FAILED)
    assert before == dag_runs(airflow)


def test_form_asks_for_one_run_however_often_it_is_sent(open_page: Open, ended: DagRun) -> None:
    page = open_page(tab_of(ended), user="user")
    run, start = start_form(page)
    asked = hold_triggers(page)

    with page.expect_request(TRIGGERS):
        start.evaluate("button => { button.click(); button.click(); }")
    expect(start).to_be_disabled()
    run.locator("form.start").evaluate("form => form.requestSubmit()")

    asked[0].fulfill(status=409, json={"detail": "It is there already."})
    expect(run.get_by_role("alert")).to_have_text("It is there already.")
    expect(start).to_be_enabled()
    assert 1 == len(asked)


def test_form_says_that_a_run_may_have_been_started_where_airflow_did_not_answer(
    open_page: Open, ended: DagRun
) -> None:
    page = open_page(tab_of(ended), user="user")
    run, start = start_form(page)
    asked = hold_triggers(page)
    answers: list[tuple[str, Callable[[Route], None]]] = [
        ("There was no answer", lambda route: route.abort()),
        ("The answer was 502, and none of Airflow's", lambda route: route.fulfill(status=502, body="<h1>Sorry</h1>")),
        ("The answer was 200, and none of Airflow's", lambda route: route.fulfill(status=200, body="<h1>Log in</h1>")),
        ("The answer was 500, Broken", lambda route: route.fulfill(status=500, json={"detail": "Broken"})),
    ]

    for number, (said, answer) in enumerate(answers):
        with page.expect_request(TRIGGERS):
            start.evaluate("button => button.click()")
        expect(start).to_be_disabled()
        answer(asked[number])
        expect(run.get_by_role("alert")).to_contain_text(said)
        expect(run.get_by_role("alert")).to_contain_text(DOUBT)
        expect(start).to_be_enabled()

    assert len(answers) == len(asked)


@acts_in_either
def test_checkpoint_is_pinned_and_released(open_page: Open, ended: DagRun, theme: Theme) -> None:
    run = framed(open_page(tab_of(ended), user="user", theme=theme))

    run.get_by_role("button", name="Pin").first.click()
    expect(run.get_by_role("heading", name="is kept until somebody releases it")).to_be_visible()
    run.get_by_role("link", name="Back to the run").click()
    expect(run.get_by_role("cell", name="user, who pinned it")).to_be_visible()
    run.get_by_role("button", name="Release").click()
    expect(run.get_by_role("heading", name="is released: retention decides on it again")).to_be_visible()
    run.get_by_role("link", name="Back to the run").click()

    expect(run.get_by_role("cell", name="user, who pinned it")).to_have_count(0)


@acts_in_either
def test_checkpoint_is_saved_in_a_folder_of_its_own(open_page: Open, ended: DagRun, theme: Theme) -> None:
    run = framed(open_page(tab_of(ended), user="user", theme=theme))

    run.get_by_role("button", name="Savepoint now").click()

    said = run.get_by_role("heading", name="is saved in").inner_text()
    assert (Path(said.rpartition(" ")[2]) / "savepoint.json").exists()


def test_checkpoint_of_a_row_is_saved_in_a_folder_of_its_own(open_page: Open, ended: DagRun) -> None:
    page = open_page(tab_of(ended), user="user")
    run = framed(page)
    save = run.get_by_role("button", name="Savepoint", exact=True)
    row = run.get_by_role("row").filter(has=save).last
    checkpoint_id, epoch = (int(row.locator("td").nth(column).inner_text()) for column in (0, 1))

    save.last.click()

    said = run.get_by_role("heading", name=f"Checkpoint {checkpoint_id} is saved in").inner_text()
    assert epoch == open_savepoint(said.rpartition(" ")[2]).manifest.epoch
    expect_themed(page, run.get_by_role("link", name="Back to the run"), LINK)


@acts_in_either
def test_live_run_is_checkpointed_stopped_planned_and_resumed(
    airflow: AirflowSite, open_page: Open, tmp_path: Path, theme: Theme
) -> None:
    dag_run_id = airflow.trigger(DAG_ID, trace=str(tmp_path), until=20, holds_in=1)
    wait_for(lambda: (tmp_path / "held").exists() or None, what="epoch 1")
    page = open_page(f"dags/{DAG_ID}/runs/{dag_run_id}/plugin/iteration", user="user", theme=theme)
    run = framed(page)

    run.get_by_role("button", name="Checkpoint now").click()
    expect(run.get_by_role("heading", name="The next epoch that aligns gets a checkpoint.")).to_be_visible()
    run.get_by_role("link", name="Back to the run").click()
    run.get_by_role("button", name="Stop after this epoch").click()
    expect(
        run.get_by_role("heading", name="The run stops after the epoch in progress, as user has asked.")
    ).to_be_visible()
    (tmp_path / "released").touch()
    airflow.wait(DAG_ID, dag_run_id)
    run.get_by_role("link", name="Back to the run").click()
    run.get_by_role("button", name="Dry-run a resume").click()
    expect(run.get_by_role("heading", name="The next attempt would")).to_be_visible()
    take_picture(page, f"plan-{theme}")
    run.get_by_role("link", name="Back to the run").click()
    run.get_by_role("button", name="Resume", exact=True).click()
    expect(run.get_by_role("heading", name="The run may go on with epoch 2")).to_be_visible()

    found = airflow.store.find_run(f"{DAG_ID}/{dag_run_id}")
    assert found is not None
    assert ["user"] == [asked.requested_by for asked in airflow.store.list_requests(found.run_id)]
    assert (RunStatus.RUNNING, 1, None) == (found.status, found.last_durable_epoch, found.asked_to)


def test_tab_of_a_live_run_follows_it_without_being_loaded_again_and_saves_its_next_epoch(
    airflow: AirflowSite, open_page: Open, tmp_path: Path
) -> None:
    dag_run_id = airflow.trigger(DAG_ID, trace=str(tmp_path), until=2, holds_in=2)
    wait_for(lambda: (tmp_path / "held").exists() or None, what="epoch 2")
    tab = f"dags/{DAG_ID}/runs/{dag_run_id}/plugin/iteration"
    pages = [open_page(tab, user=user) for user in ("viewer", "user")]
    followed, saving = (framed(page) for page in pages)
    expect(followed.get_by_role("heading", name="RUNNING")).to_be_visible()
    expect_themed(pages[0], followed.locator(".status"), RUNNING)
    followed.locator("body").evaluate("body => body.dataset.page = 'the first'")

    saving.get_by_role("button", name="Savepoint now").click()
    expect(saving.get_by_role("heading", name="A checkpoint of the next epoch")).to_be_visible()
    expect_themed(pages[1], saving.get_by_role("link", name="Back to the run"), LINK)
    (tmp_path / "released").touch()
    said = saving.get_by_role("heading", name="is saved in").inner_text()
    expect(followed.get_by_role("heading", name="FINISHED")).to_be_visible()
    expect_themed(pages[0], followed.locator(".status"), FINISHED)

    assert "the first" == followed.locator("body").get_attribute("data-page")
    assert 2 == open_savepoint(said.rpartition(" ")[2]).manifest.epoch


def test_epoch_task_links_to_its_epoch_in_the_tab(airflow: AirflowSite, open_page: Open, ended: DagRun) -> None:
    link = airflow.links(DAG_ID, ended.dag_run_id, "epochs.e004")["Epoch"]
    assert link is not None

    page = open_page(link.removeprefix(f"{BASE_PATH}/"))

    wanted = framed(page).locator("tr.wanted td").first
    expect(wanted).to_have_text("4")
    expect_themed(page, wanted, WANTED, of="background-color")


def test_tab_of_a_run_that_fails_follows_it_until_it_has_finished(
    airflow: AirflowSite, open_page: Open, tmp_path: Path
) -> None:
    failed = airflow.run(DAG_ID, trace=str(tmp_path), until=2, fails_in=1)
    page = open_page(tab_of(failed), user="viewer")
    run = framed(page)
    expect(run.get_by_role("heading", name="FAILED")).to_be_visible()
    expect_themed(page, run.locator(".status"), FAILED)
    expect(run.locator("table.grid td:has(span.failed)")).to_have_attribute(
        "title", "added, epoch 1: failed in epoch 1"
    )
    run.locator("body").evaluate("body => body.dataset.page = 'the first'")

    (tmp_path / "mended").touch()
    airflow.api.clear(DAG_ID, failed.dag_run_id, task_ids=("epochs.e000",))
    expect(run.get_by_role("heading", name="FINISHED")).to_be_visible()

    assert "the first" == run.locator("body").get_attribute("data-page")


def test_link_to_an_epoch_that_is_not_among_the_newest_leads_to_it(
    airflow: AirflowSite, open_page: Open, long: Trained
) -> None:
    tab = f"dags/{DAG_ID}/runs/long/plugin/iteration"

    page = open_page(f"{tab}#epoch-7")

    run = framed(page)
    expect(run.locator("tr.wanted td").first).to_have_text("7")
    expect_themed(page, run.locator("#epochs ~ p a[rel=prev]"), LINK)
    run.get_by_role("link", name="newer").click()
    expect(run.locator("#epoch-table tr[data-own-epoch]").first.locator("td").first).to_have_text("249")


def test_task_of_a_group_links_to_its_groups_epoch_and_the_group_leads_back_to_the_others(
    airflow: AirflowSite, open_page: Open, tmp_path: Path
) -> None:
    ended = airflow.run("counting_in_two_groups", trace=str(tmp_path), until=1)
    link = airflow.links(ended.dag_id, ended.dag_run_id, "coarse.epochs.e001")["Epoch"]
    assert link is not None

    page = open_page(link.removeprefix(f"{BASE_PATH}/"))

    run = framed(page)
    expect(run.locator("tr.wanted td").first).to_have_text("1")
    expect_themed(page, run.locator(".status"), FINISHED)
    run.get_by_role("link", name="The DAG run's iterations").click()
    expect(run.locator("a[data-group]")).to_have_text(["coarse", "fine"])
    expect_themed(page, run.locator("td.FINISHED").first, FINISHED)
    run.get_by_role("link", name="fine").click()
    expect(run.get_by_role("heading", name="FINISHED")).to_be_visible()
    expect(run.locator("tr.wanted")).to_have_count(0)


def test_run_that_no_dag_started_is_found_by_its_status_and_has_a_page(airflow: AirflowSite, open_page: Open) -> None:
    an_origin(airflow.store, a_run("by-hand"), epoch=1)
    page = open_page("plugin/iterations")
    runs = framed(page)
    runs.get_by_label("Name").fill("by-hand")

    runs.get_by_label("Status").select_option("FINISHED")
    runs.get_by_role("button", name="Show").click()
    expect(runs.get_by_role("cell", name="no run that you may see is like that")).to_be_visible()
    runs.get_by_label("Status").select_option("RUNNING")
    runs.get_by_role("button", name="Show").click()
    runs.get_by_role("link", name="by-hand").click()

    expect(runs.get_by_role("heading", name="RUNNING")).to_be_visible()
    expect(runs.get_by_text("2 durable epochs")).to_be_visible()
    expect(runs.get_by_role("button")).to_have_count(0)
    expect_themed(page, runs.locator(".status"), RUNNING)


def expect_themed(page: Page, shown: Locator, colours: Colours, *, of: str = "color") -> None:
    """Look at something in both themes, between which a browser changes without loading the page again."""
    for theme, colour in colours.items():
        page.emulate_media(color_scheme=theme)
        expect(shown).to_have_css(of, colour)


def framed(page: Page) -> FrameLocator:
    """Return our page inside Airflow's."""
    return page.frame_locator("iframe")


def tab_of(run: DagRun) -> str:
    return f"dags/{run.dag_id}/runs/{run.dag_run_id}/plugin/iteration"


def start_form(page: Page) -> tuple[FrameLocator, Locator]:
    """Open the form of a run's newest checkpoint, and return it with its button, once that can be pressed.

    A test that counts what is sent presses it by the page itself: a pointer misses a page that moves under it, and a
    key goes wherever Airflow's page has put the focus.
    """
    run = framed(page)
    run.get_by_role("button", name="Start from here").first.click()
    start = run.get_by_role("button", name="Start", exact=True)
    expect(start).to_be_enabled()
    return run, start


def hold_triggers(page: Page) -> list[Route]:
    """Keep what a page asks Airflow's API for a DAG run, unanswered, and return where it is kept."""
    held: list[Route] = []
    page.route(TRIGGERS, lambda route: held.append(route) if route.request.method == "POST" else route.fallback())
    return held


def dag_runs(airflow: AirflowSite) -> dict[str, dict[str, object]]:
    """Return what each run of the DAG was configured with."""
    found = airflow.api.call("GET", f"dags/{DAG_ID}/dagRuns")["dag_runs"]
    return {run["dag_run_id"]: run["conf"] for run in found}


def take_picture(page: Page, name: str) -> None:
    folder = os.environ.get(PICTURES_VARIABLE)
    page.screenshot(path=Path(folder) / f"{name}.png" if folder else None, animations="disabled")
