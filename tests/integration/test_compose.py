"""Is docker-compose.yml a Compose file, and does its setup script do what it says? That runs as its service does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import yaml
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ProgrammingError

from iteration_lib.store.embedded import EmbeddedPostgres
from iteration_lib.store.postgres import open_engine

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"


def test_compose_file_is_one_by_the_specifications_schema(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yml"
    wrong.write_text(COMPOSE.read_text().replace("healthcheck:", "health_check:", 1))

    codes = [validate(COMPOSE), validate(wrong)]

    assert [0, 1] == codes


@pytest.mark.airflow
@pytest.mark.postgres
def test_setup_writes_the_logins_makes_the_bucket_and_migrates_both_databases_and_may_be_repeated(
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
    assert [True, True] == ["applied" in said[0].stdout, "the store's schema is up to date" in said[1].stdout]
    assert [True, True] == ["Database migration done!" in answer.stdout for answer in said]

    pages = json.loads(environment["AIRFLOW_CONN_ITERATION_STORE_READ"])
    url = make_url(environment["ITERATION_STORE_URL"]).set(username=pages["login"], password=pages["password"])
    engine = open_engine(url.render_as_string(hide_password=False))
    with engine.connect() as connection:
        assert 0 == connection.scalar(text("SELECT count(*) FROM runs"))
        with pytest.raises(ProgrammingError, match="permission denied"):
            connection.execute(text("DELETE FROM runs"))
    engine.dispose()


def validate(path: Path) -> int:
    """Hold a file against the Compose specification's schema; return the exit code."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, check=False, capture_output=True).returncode


def setup_environment(folder: Path) -> dict[str, str]:
    """Return the setup service's variables, with a word for every secret, and this machine's paths."""
    service = yaml.safe_load(COMPOSE.read_text())["services"]["setup"]
    own = {name: re.sub(r"\$\{[^}]*\}", "a-word", value) for name, value in service["environment"].items()}
    return {
        **own,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
