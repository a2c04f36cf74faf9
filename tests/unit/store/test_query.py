"""Where is the SQL, and does every statement keep to its rules?"""

from __future__ import annotations

import re

import pytest

from iteration_lib.store import command_sql
from iteration_lib.store.migrate import SCHEMA_VERSION, Migration, migrations
from iteration_lib.store.query import queries, sql_folder

NO_TOKEN = {
    "lock_run": "it reads",
    "lock_unchanged_run": "it reads, and names what the token was known by",
    "lock_lease": "it reads",
    "insert_run": "there is no attempt yet",
    "insert_operators": "there is no attempt yet",
    "insert_branch": "there is no attempt yet",
    "touch_origin": "it counts a pin, which is another run's",
}


def written() -> dict[str, str]:
    """Return the statements of write.sql, by name."""
    source = (sql_folder() / "queries" / "write.sql").read_text(encoding="utf-8")
    names = re.findall(r"^-- ([a-z_]+): ", source, re.MULTILINE)
    return {name: str(queries()[name]) for name in names}


@pytest.mark.parametrize("name", written())
def test_write_names_the_token_that_it_writes_for(name: str) -> None:
    """So that a holder that was superseded finds no row, whatever it believes."""
    assert (":fencing_token" in written()[name]) == (name not in NO_TOKEN)


@pytest.mark.parametrize("name", [name for name in written() if name not in NO_TOKEN])
def test_token_is_a_condition_and_not_only_a_value(name: str) -> None:
    condition = written()[name].partition("WHERE")[2]

    assert "fencing_token = :fencing_token" in condition


def test_every_statement_is_of_one_run_and_lists_its_columns() -> None:
    lists = {"list_runs", "list_prefixes", "insert_run", "select_run"}
    for name, statement in queries().items():
        text = str(statement)
        assert name in lists or ":run_id" in text, name
        assert not re.search(r"(SELECT|,|\.)\s*\*", text), name
        assert ";" not in text, name


def test_update_of_a_run_counts_itself_exactly_where_the_store_expects_it() -> None:
    """The coordinator keeps a state for as long as the revision says that nobody wrote."""
    counting = {name for name, statement in written().items() if "revision = revision + 1" in statement}
    updating = {
        name for name, statement in written().items() if re.search(r"^ *UPDATE runs\b", statement, re.MULTILINE)
    }

    assert command_sql.RUN_UPDATES == counting == updating


def test_schema_version_is_that_of_the_last_migration_and_none_is_left_out() -> None:
    versions = [migration.version for migration in migrations()]

    assert list(range(1, SCHEMA_VERSION + 1)) == versions


def test_digest_of_a_migration_is_of_its_text() -> None:
    one, same, other = (Migration(version=1, name="n", source=source) for source in ("a", "a", "b"))

    assert one.sha256 == same.sha256 != other.sha256
    assert "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" == one.sha256
