"""Does docker-compose.yml's setup script do what it says? It runs as its service does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import yaml

from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.postgres import PostgresStore

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

ROOT = Path(__file__).parents[2]


def test_setup_writes_the_login_makes_the_bucket_and_migrates_both_databases_and_may_be_repeated(
    postgres_server: EmbeddedPostgres, s3: str, tmp_path: Path
) -> None:
    for name in ("compose_airflow", "compose_iteration"):
        postgres_server.ensure_database(name)
    environment = setup_environment(tmp_path) | {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres_server.url("compose_airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": postgres_server.async_url("compose_airflow"),
        "AWS_ENDPOINT_URL": fsspec.config.conf["s3"]["endpoint_url"],
        "ITERATION_STORE_URL": postgres_server.url("compose_iteration"),
    }

    said = [
        subprocess.run([ROOT / "docker" / "setup.sh"], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]

    passwords = tmp_path / "passwords.json"
    assert ['{"admin": "a-word"}', 0o600] == [passwords.read_text(), passwords.stat().st_mode & 0o777]
    assert "iterations" in fsspec.filesystem("s3").ls("")
    assert "Database migrating done!" in said[1].stdout
    PostgresStore(environment["ITERATION_STORE_URL"]).close()


def setup_environment(folder: Path) -> dict[str, str]:
    """Return the setup service's variables, with a word for every secret, and this machine's paths."""
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["setup"]
    own = {name: re.sub(r"\$\{[^}]*\}", "a-word", value) for name, value in service["environment"].items()}
    return {
        **own,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
