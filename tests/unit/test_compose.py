"""What can be known of docker-compose.yml without a Docker engine: its paths, variables, volumes and commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.cli.cli_config import core_commands

from iteration_lib.store.postgres import open_engine

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_mounted_path_exists_and_every_volume_is_declared(name: str) -> None:
    sources = [mount.split(":")[0] for mount in SERVICES[name].get("volumes", [])]

    assert [] == [source for source in sources if source.startswith(".") and not (ROOT / source).exists()]
    assert set() == {source for source in sources if not source.startswith(".")} - set(COMPOSE["volumes"])


def test_every_secret_is_demanded_and_the_example_leaves_it_empty() -> None:
    example = (ROOT / ".env.example").read_text().splitlines()
    names = {line.removesuffix("=") for line in example if line and not line.startswith("#")}
    assignments = [line for line in example if "=" in line and not line.startswith("#")]

    assert [] == [line for line in assignments if not line.endswith("=")]
    assert names == set(re.findall(r"\$\{(\w+):\?fill in \.env\}", TEXT))
    assert names == set(re.findall(r"\$\{(\w+)", TEXT))


def test_no_password_is_written_out() -> None:
    passwords = re.findall(r"://\w+:(\S[^@\n]*)@", TEXT) + re.findall(r"_PASSWORD: (.+)", TEXT)

    assert passwords
    assert [] == [password for password in passwords if not password.startswith("${")]


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if service["image"] != "postgres:17"])
def test_every_command_is_one_of_airflows_or_a_script_that_is_mounted(name: str) -> None:
    first, *rest = shlex.split(SERVICES[name]["command"])
    mounted = [mount.split(":")[1] for mount in SERVICES[name]["volumes"]]

    assert first in mounted or (first == "airflow" and rest[0] in {command.name for command in core_commands})


def test_whatever_stays_up_is_watched() -> None:
    assert {"setup"} == {name for name, service in SERVICES.items() if "healthcheck" not in service}


def test_dockerfile_copies_only_what_is_there() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)

    assert [] == [path for line in copied for path in line.split() if not (ROOT / path).exists()]


def test_stores_address_is_one_that_the_store_takes() -> None:
    url = SERVICES["scheduler"]["environment"]["ITERATION_STORE_URL"]

    engine = open_engine(re.sub(r"\$\{[^}]*\}", "word", url))

    assert ("postgres", "iteration") == (engine.url.host, engine.url.database)
