"""What can be known of docker-compose.yml without a Docker engine: its paths, variables, volumes and commands."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import socket
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from airflow.cli import cli_parser
from pyspark.sql.connect.client.core import DefaultChannelBuilder

from iteration_lib.airflow.connect import find_connect_url
from iteration_lib.store.postgres import open_engine
from iteration_lib.store.postgres_binaries import Account, PostgresBinaries, find_binaries

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
COMMANDS = {name: shlex.split(service["command"]) for name, service in SERVICES.items()}
HEALTH = {name: shlex.split(known["healthcheck"]["test"]) for name, known in SERVICES.items() if "healthcheck" in known}
# Where Airflow and Spark listen unless they are told otherwise.
PORTS = {"api-server": 8080, "spark-master": 8080, "spark-worker": 8081, "spark-connect": 15002}
# What the object store's image is built from: seaweedfs/seaweedfs, docker/Dockerfile.go_build (Alpine, whose busybox
# has wget), docker/entrypoint.sh (the word that says which server) and weed/command/server.go (the options).
OBJECT_STORE = {"server": {"-s3", "-ip.bind", "-master.volumePreallocate"}, "wget": {"-q", "-O"}}


@pytest.mark.parametrize("name", SERVICES)
def test_whoever_is_waited_for_is_there_and_says_so_himself(name: str) -> None:
    waited_for = SERVICES[name].get("depends_on", {})

    conditions = {other: condition["condition"] for other, condition in waited_for.items()}

    assert {
        other: "service_healthy" if "healthcheck" in SERVICES[other] else "service_completed_successfully"
        for other in waited_for
    } == conditions


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


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one_that_the_image_has_or_a_script_that_is_mounted(name: str) -> None:
    first, *rest = shlex.split(SERVICES[name]["command"])
    mounted = [mount.split(":")[1] for mount in SERVICES[name]["volumes"]]
    installed = {"airflow": "apache-airflow-core", "spark-class": "pyspark", "spark-submit": "pyspark"}

    if first in mounted:
        return
    files = importlib.metadata.files(installed[first]) or []
    entries = {entry.name for entry in importlib.metadata.entry_points(group="console_scripts")}
    assert first in entries | {file.name for file in files}
    assert f"\n{installed[first].removesuffix('-core')}==" in "\n" + (ROOT / "requirements" / "demo.txt").read_text()
    assert [] == [word for word in rest if word.startswith("org.apache.") and not _is_in_spark(word)]


@pytest.mark.parametrize(
    "words", [words for words in (*COMMANDS.values(), *HEALTH.values()) if words[0] == "airflow"], ids=" ".join
)
def test_every_word_behind_airflow_is_one_that_its_command_line_takes(words: list[str]) -> None:
    taken = vars(cli_parser.get_parser().parse_args(words[1:]))

    assert "func" in taken
    assert PORTS["api-server"] == taken.get("port", PORTS["api-server"])


@pytest.mark.parametrize("name", [name for name, words in HEALTH.items() if words[0] == "python"])
def test_health_check_in_python_fails_where_nobody_listens_and_asks_the_port_of_its_service(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(address: object, *_: object, **__: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setenv("no_proxy", "*")
    interpreter, option, program = HEALTH[name]

    with pytest.raises(OSError, match=r"^$|refused|urlopen"):
        exec(compile(program, name, "exec"), {})  # noqa: S102  (the file's own program)

    assert [("localhost", PORTS[name])] == asked
    assert ("python", "-c") == (interpreter, option)


def test_postgres_knows_the_setting_and_the_health_check_is_one_that_its_own_program_takes(
    tmp_path: Path,
) -> None:
    """The image, docker-library/postgres (17/trixie/Dockerfile), has Debian's postgresql-17 on its PATH."""
    ourselves = Account(user_id=os.geteuid(), group_id=os.getegid())
    binaries = find_binaries(ourselves, system_folder=tmp_path)
    server, option, setting = COMMANDS["postgres"]
    known = _answer_of(binaries, server, "--describe-config").stdout

    asked = _answer_of(binaries, *HEALTH["postgres"])

    assert ("postgres", "-c") == (server, option)
    assert setting.partition("=")[0] in {line.split("\t")[0] for line in known.splitlines()}
    assert ("pg_isready", "") == (HEALTH["postgres"][0], asked.stderr)  # whoever answers, or nobody
    assert asked.returncode != 3  # what it says of words that it does not know


def test_object_stores_words_are_those_of_what_its_image_is_built_from() -> None:
    for first, *rest in (COMMANDS["object-store"], HEALTH["object-store"]):
        options = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert set() == options - OBJECT_STORE[first]
    assert SERVICES["scheduler"]["environment"]["AWS_ENDPOINT_URL"].endswith(":8333")
    assert "http://127.0.0.1:8333/healthz" == HEALTH["object-store"][-1]


def test_every_program_is_looked_at() -> None:
    foreign = {"postgres", "object-store"}

    assert foreign == set(SERVICES) - set(OURS)
    assert {"airflow", "python"} == {HEALTH[name][0] for name in HEALTH.keys() - foreign}


def test_image_holds_what_the_commands_need_beside_the_lock() -> None:
    """Spark's programs ask for a Java, the setup script and drivers for the means to reach the object store."""
    packages = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "demo.txt").read_text(), re.MULTILINE)

    assert "openjdk-17-jre-headless" in DOCKERFILE
    assert {"s3fs", "grpcio", "asyncpg"} <= set(packages)


def test_every_address_is_a_services_name() -> None:
    names = re.findall(r"(?:@|http://|spark://|\"host\": \")([a-z-]+)(?=[:/\"])", TEXT)

    assert {"postgres", "object-store", "spark-master", "spark-connect", "api-server"} <= set(names)
    assert set() == set(names) - set(SERVICES) - {"localhost", "spark"}


def test_drivers_and_executors_find_the_same_state_and_the_same_input() -> None:
    kinds = ("scheduler", "spark-worker", "spark-connect")
    state = ("ITERATION_STATE_URI", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

    environments = [tuple(SERVICES[kind]["environment"][name] for name in state) for kind in kinds]
    inputs = [[mount for mount in SERVICES[kind]["volumes"] if mount.startswith("input-data:")] for kind in kinds]

    assert 1 == len(set(environments))
    assert [["input-data:/opt/airflow/data"]] * 3 == inputs


@pytest.mark.parametrize("name", [name for name in SERVICES if name.startswith("spark")])
def test_sparks_services_know_no_secret_of_airflows(name: str) -> None:
    demanded = set(re.findall(r"\$\{(\w+)", json.dumps(SERVICES[name]["environment"])))

    assert demanded <= {"OBJECT_STORE_ACCESS_KEY", "OBJECT_STORE_SECRET_KEY"}


def test_connect_server_is_asked_without_tls_which_it_does_not_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client speaks TLS to every host but localhost as soon as there is a token, whatever `use_ssl` says."""
    name = "AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"
    monkeypatch.setenv(name, re.sub(r"\$\{[^}]*\}", "word", SERVICES["scheduler"]["environment"][name]))

    asked = DefaultChannelBuilder(find_connect_url("spark_connect_default"))

    assert ("spark-connect:15002", False) == (asked.endpoint, asked.secure)
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" not in SERVICES["spark-connect"]["environment"]


def test_whatever_stays_up_is_watched() -> None:
    assert {"setup"} == {name for name, service in SERVICES.items() if "healthcheck" not in service}


def test_dockerfile_copies_only_what_is_there() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)

    assert [] == [path for line in copied for path in line.split() if not (ROOT / path).exists()]


def test_stores_address_is_one_that_the_store_takes() -> None:
    url = SERVICES["scheduler"]["environment"]["ITERATION_STORE_URL"]

    engine = open_engine(re.sub(r"\$\{[^}]*\}", "word", url))

    assert ("postgres", "iteration") == (engine.url.host, engine.url.database)


def _answer_of(binaries: PostgresBinaries, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [binaries.program(name), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _is_in_spark(name: str) -> bool:
    """Tell whether one of the jars that pyspark brings has a class."""
    wanted = f"{name.replace('.', '/')}.class"
    jars = (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")
    return any(wanted in zipfile.ZipFile(jar).namelist() for jar in jars)
