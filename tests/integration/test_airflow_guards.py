"""Who is let in to which page and action, on real Airflow? The matrix is made from the route table."""

from __future__ import annotations

import itertools
import re

import httpx
import pytest
from fastapi.routing import APIRoute

from iteration_lib.store.record import NewRun
from iteration_ui.app import make_app
from tests.failover.driven import PATIENCE_SECONDS
from tests.fixture.airflow import AirflowSite, DagRun
from tests.store_script import a_run

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

ANONYMOUS = "anonymous"
PEOPLE = (ANONYMOUS, "only_counting_retried", "viewer", "user", "op", "admin")
LOGGED_IN = PEOPLE[1:]
VIEWERS, USERS, OPERATORS = PEOPLE[2:], PEOPLE[3:], PEOPLE[4:]
RUN = "/dags/{dag_id}/runs/{dag_run_id}"
GROUP = f"{RUN}/{{group}}"
ACTIONS = (
    "stop",
    "resume",
    "checkpoint",
    "savepoint",
    "checkpoints/{checkpoint_id}/savepoint",
    "checkpoints/{checkpoint_id}/pin",
    "checkpoints/{checkpoint_id}/release",
    "plan",
)
LET_IN = {
    ("GET", "/runs"): LOGGED_IN,  # each of them sees the runs of his own DAGs
    ("GET", "/runs/{run_id}"): OPERATORS,
    ("GET", RUN): VIEWERS,
    ("GET", GROUP): VIEWERS,
    ("GET", f"{RUN}/checkpoints/{{checkpoint_id}}/start"): USERS,
    **{("POST", f"{place}/{action}"): USERS for place in (RUN, GROUP) for action in ACTIONS},
}
ROUTES = [(method, route) for route in make_app().routes if isinstance(route, APIRoute) for method in route.methods]


@pytest.fixture(scope="module")
def ended(airflow: AirflowSite, tmp_path_factory: pytest.TempPathFactory) -> DagRun:
    """A run of the DAG that the limited viewer may not see."""
    return airflow.run("counting", trace=str(tmp_path_factory.mktemp("trace")), until=1)


@pytest.fixture(scope="module")
def by_hand(airflow: AirflowSite) -> NewRun:
    """A run that no DAG started."""
    run = a_run("started-by-hand")
    assert airflow.store.add_run(run)
    return run


@pytest.mark.parametrize(("method", "route"), ROUTES, ids=lambda part: getattr(part, "path", part))
def test_route_lets_in_whom_airflow_lets_in_and_nobody_else(
    airflow: AirflowSite, ended: DagRun, by_hand: NewRun, method: str, route: APIRoute
) -> None:
    if "group" in route.path:
        airflow.store.add_run(a_run(f"{ended.run_key}/its-group"))
    names = {
        "dag_id": ended.dag_id,
        "dag_run_id": ended.dag_run_id,
        "group": "its-group",
        "run_id": by_hand.run_id,
        "checkpoint_id": "1",
    }
    path = re.sub(r"{(\w+)}", lambda found: names[found[1]], route.path)

    answers = {person: ask(airflow, method, path, person=person) for person in PEOPLE}

    let_in = [person for person, answer in answers.items() if answer.status_code not in (401, 403)]
    assert LET_IN[method, route.path] == tuple(let_in)
    refused = [answer.text for person, answer in answers.items() if person not in let_in]
    assert not any(str(secret) in text for secret, text in itertools.product(names.values(), refused) if secret != "1")
    assert not any(answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR for answer in answers.values())


def test_list_shows_each_viewer_the_runs_of_his_own_dags(airflow: AirflowSite, ended: DagRun, by_hand: NewRun) -> None:
    shown = {person: ask(airflow, "GET", "/runs", person=person).text for person in LOGGED_IN}

    assert {
        "only_counting_retried": (False, False),
        "viewer": (True, False),
        "user": (True, False),
        "op": (True, True),
        "admin": (True, True),
    } == {person: (ended.dag_run_id in text, by_hand.run_key in text) for person, text in shown.items()}


def test_list_of_another_dag_and_its_runs_metrics_are_closed(airflow: AirflowSite, ended: DagRun) -> None:
    run = airflow.store.find_run(ended.run_key)
    assert run is not None

    of_dag = ask(airflow, "GET", f"/runs?dag_id={ended.dag_id}", person="only_counting_retried")
    compared = ask(airflow, "GET", f"/runs?compare={run.run_id}", person="only_counting_retried")

    assert httpx.codes.FORBIDDEN == of_dag.status_code
    assert (httpx.codes.OK, False) == (compared.status_code, "<svg" in compared.text)
    assert "<svg" in ask(airflow, "GET", f"/runs?compare={run.run_id}", person="viewer").text


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/checkpoint")])
def test_all_dags_together_have_no_page(airflow: AirflowSite, method: str, path: str) -> None:
    """Also where somebody has named a run so that it would be theirs."""
    airflow.store.add_run(a_run("~/by-hand"))

    answer = ask(airflow, method, f"/dags/~/runs/by-hand{path}", person="admin")

    assert (httpx.codes.NOT_FOUND, True) == (answer.status_code, "There is no such DAG." in answer.text)


def test_run_of_a_dag_has_no_page_beside_that_dags(airflow: AirflowSite, ended: DagRun) -> None:
    run = airflow.store.find_run(ended.run_key)
    assert run is not None

    answers = [ask(airflow, "GET", f"/{path}/{run.run_id}", person="admin") for path in ("runs", "dags/counting/runs")]

    assert [httpx.codes.NOT_FOUND] * 2 == [answer.status_code for answer in answers]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, httpx.codes.CONFLICT),  # let in: the run is over
        ({"Sec-Fetch-Site": "cross-site"}, httpx.codes.FORBIDDEN),
        ({"Origin": "https://evil.example.org"}, httpx.codes.FORBIDDEN),
        ({}, httpx.codes.FORBIDDEN),
    ],
)
def test_other_site_cannot_act_in_a_viewers_name(
    airflow: AirflowSite, ended: DagRun, headers: dict[str, str], status: int
) -> None:
    cookies = {"_token": airflow.processes.api("user").token}

    answer = httpx.post(
        f"{airflow.processes.url}/iterations/dags/counting/runs/{ended.dag_run_id}/stop",
        headers=headers,
        cookies=cookies,
    )

    assert status == answer.status_code


def ask(airflow: AirflowSite, method: str, path: str, *, person: str) -> httpx.Response:
    """Call a route as somebody."""
    headers = {} if person == ANONYMOUS else {"Authorization": f"Bearer {airflow.processes.api(person).token}"}
    return httpx.request(method, f"{airflow.processes.url}/iterations{path}", headers=headers, timeout=PATIENCE_SECONDS)
