"""Where does a standalone Airflow lie, and which settings does it run with?

Everything is given by environment variables, so that no file of settings can contradict another; secrets are made once
per folder and kept there with mode 0600.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What one folder's Airflow signs, encrypts and lets people in with."""

    jwt_secret: str
    secret_key: str
    fernet_key: str
    passwords: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one start; the two log servers only answer the api-server."""

    api: int
    worker_log: int
    trigger_log: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One standalone Airflow. `users` maps names to SimpleAuthManager's roles; `base_path` is where it is mounted."""

    home: Path
    dags: Path
    plugins: Path
    metadata_url: str
    metadata_async_url: str
    connections: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=lambda: {"admin": "admin"})
    base_path: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def logs(self) -> Path:
        """Where each process writes what it prints."""
        return self.home / "logs" / "processes"

    @property
    def passwords_file(self) -> Path:
        """Where SimpleAuthManager looks passwords up."""
        return self.home / "passwords.json"


def free_ports() -> Ports:
    """Return three ports that nobody listens on at this moment."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(3)]
    api, worker_log, trigger_log = (opened.getsockname()[1] for opened in sockets)
    for opened in sockets:
        opened.close()
    return Ports(api=api, worker_log=worker_log, trigger_log=trigger_log)


def ensure_secrets(settings: Settings) -> Secrets:
    """Return the folder's secrets, made where they are missing; they stay the same from start to start."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = settings.home / "secrets.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept = {
        "jwt_secret": secrets.token_urlsafe(32),
        "secret_key": secrets.token_urlsafe(32),
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        **kept,
        "passwords": {user: secrets.token_urlsafe(12) for user in settings.users} | kept.get("passwords", {}),
    }
    _write_private(path, json.dumps(kept))
    _write_private(settings.passwords_file, json.dumps(kept["passwords"]))
    return Secrets(**kept)


def environment_of(settings: Settings, secret: Secrets, ports: Ports) -> dict[str, str]:
    """Return the variables that Airflow's processes run with, on top of the ones that the starter has itself."""
    options = {
        "core": {
            "executor": "LocalExecutor",
            "parallelism": "4",
            "dags_folder": str(settings.dags),
            "plugins_folder": str(settings.plugins),
            "load_examples": "False",
            "fernet_key": secret.fernet_key,
            "simple_auth_manager_users": ",".join(f"{name}:{role}" for name, role in settings.users.items()),
            "simple_auth_manager_passwords_file": str(settings.passwords_file),
            "execution_api_server_url": f"http://{LOOPBACK}:{ports.api}{settings.base_path}/execution/",
        },
        "database": {
            "sql_alchemy_conn": settings.metadata_url,
            "sql_alchemy_conn_async": settings.metadata_async_url,
            "load_default_connections": "False",
        },
        "api": {
            "base_url": f"http://{LOOPBACK}:{ports.api}{settings.base_path}",
            "host": LOOPBACK,
            "port": str(ports.api),
            "workers": "1",
            "secret_key": secret.secret_key,
        },
        "api_auth": {"jwt_secret": secret.jwt_secret},
        # An epoch task waits for the scheduler to look again: the default of a second would be most of a short epoch.
        "scheduler": {"scheduler_idle_sleep_time": "0.1"},
        "dag_processor": {"parsing_processes": "1", "refresh_interval": "5", "min_file_process_interval": "10"},
        "logging": {"worker_log_server_port": str(ports.worker_log), "trigger_log_server_port": str(ports.trigger_log)},
        "usage_data_collection": {"enabled": "False"},
    }
    variables = {
        f"AIRFLOW__{section.upper()}__{option.upper()}": value
        for section, values in options.items()
        for option, value in values.items()
    }
    connections = {f"AIRFLOW_CONN_{name.upper()}": value for name, value in settings.connections.items()}
    return {"AIRFLOW_HOME": str(settings.home), **variables, **connections, **settings.extra}


def connection_of_url(url: str) -> str:
    """Return a store's address as the connection that Airflow reads from an AIRFLOW_CONN_... variable."""
    parts = urlsplit(url)
    fields = {
        "conn_type": "iteration_store",
        "host": parts.hostname,
        "port": parts.port or dict(parse_qsl(parts.query)).get("port"),
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "schema": parts.path.removeprefix("/"),
        "extra": {name: value for name, value in parse_qsl(parts.query) if name != "port"},
    }
    return json.dumps({name: value for name, value in fields.items() if value})


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
