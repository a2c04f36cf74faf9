"""What do the demo and the tests ask Airflow over its REST interface?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from iteration_lib.errors import IterationError

# Answers are JSON of Airflow's making; callers pick what they need.
Json = dict[str, Any]

_HEALTH_NAMES = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_TIMEOUT_SECONDS = 30


class AirflowApiError(IterationError):
    """Airflow refused a call."""

    def __init__(self, call: str, *, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(f"Airflow answered {call} with {status}: {detail}")


class AirflowApi:
    """The calls, as one user; logs in on first use."""

    def __init__(self, url: str, *, user: str, password: str) -> None:
        self._credentials = {"username": user, "password": password}
        self._client = httpx.Client(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False)  # never by a proxy
        self._token: str | None = None

    @property
    def token(self) -> str:
        """The token that later calls carry."""
        if self._token is None:
            answer = self._client.post("/auth/token", json=self._credentials)
            self._token = str(_checked(answer)["access_token"])
        return self._token

    def health(self) -> Mapping[str, str | None]:
        """Return each process's status; nothing is healthy while nobody answers."""
        try:
            answer = self._client.get("/api/v2/monitor/health")
        except httpx.TransportError:
            return dict.fromkeys(_HEALTH_NAMES)
        if answer.status_code != httpx.codes.OK:
            return dict.fromkeys(_HEALTH_NAMES)
        found = answer.json()
        return {name: (found.get(name) or {}).get("status") for name in _HEALTH_NAMES}

    def call(self, method: str, path: str, **options: Any) -> Json:  # noqa: ANN401  (httpx's own options)
        """Call `/api/v2/...` and return the answer; raises AirflowApiError for a refusal."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return _checked(self._client.request(method, f"/api/v2/{path}", headers=headers, **options))

    def dag(self, dag_id: str) -> Json | None:
        """Return a DAG, or None while the dag-processor has not found it."""
        try:
            return self.call("GET", f"dags/{quote(dag_id)}")
        except AirflowApiError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def import_errors(self) -> list[Json]:
        """Return what is wrong with DAG files."""
        return list(self.call("GET", "importErrors")["import_errors"])

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs start."""
        self.call("PATCH", f"dags/{quote(dag_id)}", json={"is_paused": False})

    def trigger(self, dag_id: str, *, conf: Mapping[str, object] | None = None) -> str:
        """Start a DAG run and return its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self.call("POST", f"dags/{quote(dag_id)}/dagRuns", json=body)["dag_run_id"])

    def dag_run(self, dag_id: str, dag_run_id: str) -> Json:
        """Return a DAG run."""
        return self.call("GET", f"dags/{quote(dag_id)}/dagRuns/{quote(dag_run_id)}")

    def task_instances(self, dag_id: str, dag_run_id: str) -> dict[str, Json]:
        """Return a DAG run's task instances by task id."""
        path = f"dags/{quote(dag_id)}/dagRuns/{quote(dag_run_id)}/taskInstances"
        found = self.call("GET", path, params={"limit": 100})
        return {instance["task_id"]: instance for instance in found["task_instances"]}

    def clear(self, dag_id: str, dag_run_id: str, *, task_ids: tuple[str, ...]) -> None:
        """Clear tasks with what is behind them, as the UI's button does."""
        self.call(
            "POST",
            f"dags/{quote(dag_id)}/clearTaskInstances",
            json={
                "dry_run": False,
                "dag_run_id": dag_run_id,
                "task_ids": list(task_ids),
                "include_downstream": True,
                "only_failed": False,
                "reset_dag_runs": True,
            },
        )

    def log(self, dag_id: str, dag_run_id: str, task_id: str, *, try_number: int) -> str:
        """Return what a try of a task logged: a line per event, and per exception behind it."""
        path = f"dags/{quote(dag_id)}/dagRuns/{quote(dag_run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}"
        content = self.call("GET", path, params={"full_content": True})["content"]
        return "\n".join(text for line in content for text in _texts(line))


def _texts(line: Json | str) -> Iterator[str]:
    if isinstance(line, str):
        yield line
        return
    yield str(line["event"])
    for error in line.get("error_detail") or ():
        yield f"{error['exc_type']}: {error['exc_value']}"


def _checked(answer: httpx.Response) -> Json:
    if answer.is_success:
        return dict(answer.json()) if answer.content else {}
    try:
        detail = answer.json().get("detail", answer.text)
    except ValueError:
        detail = answer.text
    call = f"{answer.request.method} {answer.request.url.path}"
    raise AirflowApiError(call, status=answer.status_code, detail=str(detail))
