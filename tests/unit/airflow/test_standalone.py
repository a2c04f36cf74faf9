"""With which settings a standalone Airflow runs, and what of it is secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from iteration_lib.airflow.standalone.marked import MARK, mark_environment
from iteration_lib.airflow.standalone.processes import StandaloneAirflow, StandaloneError
from iteration_lib.airflow.standalone.settings import Ports, Settings, ensure_secrets, environment_of, free_ports


def _settings(home: Path, **changes: object) -> Settings:
    return Settings(
        **{
            "home": home,
            "dags": Path("/dags"),
            "plugins": Path("/plugins"),
            "metadata_url": "postgresql+psycopg2://u:p@/airflow",
            "metadata_async_url": "postgresql+asyncpg://u:p@/airflow",
            **changes,
        }
    )


def test_secrets_are_private_and_stay_from_start_to_start(tmp_path: Path) -> None:
    settings = _settings(tmp_path / "home")

    first, second = ensure_secrets(settings), ensure_secrets(settings)

    assert first == second
    files = [settings.home / "secrets.json", settings.passwords_file]
    assert [0o600, 0o600] == [stat.S_IMODE(file.stat().st_mode) for file in files]
    assert 0o700 == stat.S_IMODE(settings.home.stat().st_mode)


def test_user_that_comes_later_gets_a_password_and_the_others_keep_theirs(tmp_path: Path) -> None:
    before = ensure_secrets(_settings(tmp_path, users={"admin": "admin"}))

    after = ensure_secrets(_settings(tmp_path, users={"admin": "admin", "viewer": "viewer"}))

    assert before.passwords["admin"] == after.passwords["admin"]
    assert {"admin", "viewer"} == set(after.passwords)


def test_everything_listens_on_the_loopback_address_below_the_base_path(tmp_path: Path) -> None:
    settings = _settings(tmp_path, base_path="/below", connections={"iteration_store": "{}"})
    ports = Ports(api=1, worker_log=2, trigger_log=3)

    found = environment_of(settings, ensure_secrets(settings), ports)

    assert "127.0.0.1" == found["AIRFLOW__API__HOST"]
    assert "http://127.0.0.1:1/below" == found["AIRFLOW__API__BASE_URL"]
    assert "http://127.0.0.1:1/below/execution/" == found["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"]
    assert "{}" == found["AIRFLOW_CONN_ITERATION_STORE"]


def test_own_settings_win(tmp_path: Path) -> None:
    settings = _settings(tmp_path, extra={"AIRFLOW__CORE__PARALLELISM": "1"})

    assert "1" == environment_of(settings, ensure_secrets(settings), free_ports())["AIRFLOW__CORE__PARALLELISM"]


def test_free_ports_differ() -> None:
    ports = free_ports()

    assert 3 == len({ports.api, ports.worker_log, ports.trigger_log})


def test_mark_survives_processes_that_change_their_titles() -> None:
    assert {"A": "1", MARK: "x", "SPT_NOENV": "1"} == mark_environment({"A": "1"}, "x")


def test_second_airflow_in_one_folder_is_refused(tmp_path: Path) -> None:
    first, second = (StandaloneAirflow(_settings(tmp_path), environ=os.environ) for _ in range(2))
    first._take_folder()

    with pytest.raises(StandaloneError, match="another Airflow runs in"):
        second.start()

    first.stop()
