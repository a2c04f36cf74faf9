"""What is said of a Spark that cannot be had: where it was looked for and why, and nothing that is secret.

Spark Connect's client is tried in processes of its own: one that has been such a client can have no other Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from iteration_lib.errors import SparkUnavailableError
from tests.command_line import PROJECT

TOKEN = "hidden=word"
QUOTED = "hidden%3Dword"
DRIVING = """
import os, sys
from iteration_lib.clock import SystemClock
from iteration_lib.config import read_settings
from iteration_lib.engine import WarmEngine
from iteration_lib.errors import SparkUnavailableError
from iteration_lib.launch import Drive, Request, drive_run, open_run
from iteration_lib.process import this_holder
from iteration_lib.store.memory import MemoryStore

server, folder = sys.argv[1:]
store, settings = MemoryStore(SystemClock()), read_settings(os.environ, state_uri=folder)
request = Request(reference="tests.iterations.counted:counted", run_key="k", params={"log": f"{folder}/log"})
run = open_run(store, settings, request)
drive = Drive(holder=this_holder(), open_runner=WarmEngine(server=server).open_runner, parallelism=1)
try:
    drive_run(store, settings, run, drive)
except SparkUnavailableError as error:
    print(error)
print(*(attempt.reason for attempt in store.list_attempts(run.run_id)))
"""


class Refusing(grpc.GenericRpcHandler):
    """Answers every call with what a server says of a token that it does not know."""

    def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(
            lambda _, call: call.abort(grpc.StatusCode.UNAUTHENTICATED, f"nobody has the token {TOKEN}")
        )


@pytest.fixture
def refusing_server() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Refusing()])
    port = server.add_secure_port("localhost:0", grpc.local_server_credentials())
    server.start()
    yield f"sc://localhost:{port}"
    server.stop(None).wait()


def test_server_that_does_not_answer_as_it_should_is_named_without_its_token_in_the_error_and_in_the_store(
    refusing_server: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DRIVING, f"{refusing_server}/;token={QUOTED}", str(tmp_path)]

    ended = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=True
    )

    problem = f"no Spark session at {refusing_server} (nobody has the token ***)"
    assert [f"{problem}; check --master, or the connection's host"] * 2 == ended.stdout.splitlines()
    assert "hidden" not in ended.stderr


@pytest.mark.parametrize(
    ("master", "shown"),
    [
        (f"sc://spark.example:15002/;token={QUOTED};session_id=5", "at sc://spark.example:15002"),
        (f"sc://spark.example;token={QUOTED};use_ssl=true", "at sc://spark.example"),
        (f"sc://spark.example/token={QUOTED}", "at sc://spark.example"),
        ("sc://ann:p@w@spark.example/;x-key=a@b", "at sc://***@spark.example"),
        ("spark://master.example:7077", "at spark://master.example:7077"),
        ("k8s://https://ann:secret@k8s.example:6443", "at k8s://https://***@k8s.example:6443"),
        ("local[2]", "at local[2]"),
        (None, "on this machine"),
    ],
)
def test_address_is_shown_without_user_and_parameters(master: str | None, shown: str) -> None:
    assert f"no Spark session {shown} (why)" in str(SparkUnavailableError(master, "why"))


@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        (f"Parameter 'token={TOKEN}' should be a pair", "Parameter 'token=***' should be a pair"),
        (f"the path component '/token={TOKEN}' must be empty", "the path component '/token=***' must be empty"),
        (
            f"is missing in 'http://:15002/;token={TOKEN};use_ssl=true'",
            "is missing in 'http://:15002/;token=***;use_ssl=true'",
        ),
        (f"nobody has the token {TOKEN}", "nobody has the token ***"),
        ("[INVALID_HANDLE.SESSION_CLOSED] true to its word", "[INVALID_HANDLE.SESSION_CLOSED] true to its word"),
    ],
)
def test_problem_is_told_without_the_token(problem: str, shown: str) -> None:
    error = SparkUnavailableError(f"sc://spark.example:15002/;token={TOKEN};use_ssl=true", problem)

    assert f"({shown})" in str(error)
    assert "hidden" not in repr(vars(error))


@pytest.mark.parametrize(
    ("parameters", "problem", "shown"),
    [
        ("token=", "nobody listens", "nobody listens"),
        ("x-api-key=se%3Dcret", "refused se=cret of se%3Dcret", "refused *** of ***"),
        ("tokenhidden", "Parameter 'tokenhidden' should be a pair", "Parameter '***' should be a pair"),
    ],
)
def test_whatever_parameter_is_masked_and_an_empty_one_is_none(parameters: str, problem: str, shown: str) -> None:
    assert f"({shown})" in str(SparkUnavailableError(f"sc://spark.example:15002/;{parameters}", problem))
