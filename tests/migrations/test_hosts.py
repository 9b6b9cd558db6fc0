"""An application that runs Alembic itself: our tables left alone, in its own history, as a branch of it, or as SQL."""

import shutil
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import CommandLine, Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from click.testing import CliRunner
from sqlalchemy import BigInteger, Column, MetaData, String, Table, inspect, text
from support.kit import ON_POSTGRES, SQLITE, on, output
from support.servers.administrator import administrator, execute, opened, values
from support.servers.databases import problems

from allocator import Allocator
from allocator.cli import main
from allocator.database import schema
from allocator.database.tables import REVISIONS, VERSION_TABLE
from allocator.integrations import alembic as hooks

ENV = """
from alembic import context
from allocator.integrations.alembic import metadata as allocator_metadata
from sqlalchemy import BigInteger, Column, MetaData, Table, create_engine

metadata = MetaData()
Table("orders", metadata, Column("id", BigInteger, primary_key=True))

engine = create_engine(context.config.attributes["url"])
try:
    with engine.connect() as connection:
        context.configure(connection=connection, {options})
        with context.begin_transaction():
            context.run_migrations()
finally:
    engine.dispose()
"""
ALONE = "target_metadata=metadata"
TOGETHER = "target_metadata=[metadata, allocator_metadata]"
WITHOUT = f"{ALONE}, autogenerate_plugins=['alembic.autogenerate.*', '~alembic.autogenerate.allocator']"


def host(folder: Path, url: str, options: str, *also: str) -> Config:
    """An application's `env.py`, with such options, and its revisions beside those in other folders."""
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENV.format(options=options))
    (folder / "script.py.mako").write_text((schema.script_folder() / "script.py.mako").read_text())
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join([str(folder / "versions"), *also]))
    config.attributes["url"] = url
    return config


def operations(config: Config) -> str:
    """What autogenerate writes into the next revision."""
    made = command.revision(config, message="next", autogenerate=True, head="base", splice=True)
    return Path(made.path).read_text()


def table_names(url: str) -> set[str]:
    with opened(url) as engine:
        return set(inspect(engine).get_table_names())


# -- left alone


@SQLITE
def test_autogenerate_leaves_our_tables_alone(fresh, tmp_path):
    written = operations(host(tmp_path / "host", fresh, ALONE))

    assert "create_table('orders'" in written
    assert "allocator_" not in written


@SQLITE
def test_control_without_the_plugin_it_drops_them(fresh, tmp_path):
    written = operations(host(tmp_path / "host", fresh, WITHOUT))

    assert "drop_table('allocator_segment')" in written
    assert f"drop_table('{VERSION_TABLE}')" in written


@SQLITE
def test_the_plugin_compares_what_the_host_names_itself(fresh):
    """Its own table may begin as ours do; ours that it names are in its history."""
    metadata = MetaData()
    Table("allocator_of_seats", metadata, Column("id", BigInteger, primary_key=True))
    with administrator(fresh) as connection:
        metadata.create_all(connection)
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        hooks.metadata.tables["allocator_segment"].to_metadata(metadata).append_column(Column("note", String))
        ((what, _, table, column),) = compare_metadata(MigrationContext.configure(connection), metadata)

        assert (what, table, column.name) == ("add_column", "allocator_segment", "note")


def test_the_plugin_is_a_module_as_alembic_wants_it_now_and_did_at_first():
    """1.18.0 to 1.20.0 iterate over what the entry point gives: a plain module would end every command of Alembic."""
    (found,) = entry_points(group="alembic.plugins", name="alembic.autogenerate.allocator")
    module = found.load()

    assert module is hooks
    assert isinstance(module, ModuleType)
    assert list(module) == [module]


@SQLITE
def test_the_plugin_goes_together_with_the_hosts_own_hook(fresh):
    metadata = MetaData()
    Table("theirs", metadata, Column("id", BigInteger), Column("old", String))
    Table("forgotten", metadata, Column("id", BigInteger))

    def own(name, kind, parents):
        return name != "theirs"

    with administrator(fresh) as connection:
        metadata.create_all(connection)
        context = MigrationContext.configure(connection, opts={"include_name": own})
        found = compare_metadata(context, MetaData())

    assert [(what, table.name) for what, table in found] == [("remove_table", "forgotten")]


# -- in the application's own history


def test_a_second_metadata(empty, tmp_path):
    config = host(tmp_path / "host", empty, TOGETHER)
    command.revision(config, message="with ids", autogenerate=True)
    command.upgrade(config, "head")

    with Allocator(empty) as ids:
        assert ids.next_id("order") == 1
    command.check(config)
    assert {"allocator_segment", "orders"} <= table_names(empty)
    assert VERSION_TABLE not in table_names(empty)


OWN = f"""
revision = "host0001"
down_revision = None
branch_labels = ("host",)
depends_on = "{REVISIONS[-1]}"

from alembic import op
import sqlalchemy as sa

def upgrade():
    op.create_table("orders", sa.Column("id", sa.BigInteger(), primary_key=True))
    op.create_tag("orders", start_after=500)

def downgrade():
    op.drop_table("orders")
"""


@on("sqlite", "postgres", "mysql")
def test_our_revisions_as_a_branch_on_which_the_hosts_depend_and_whose_downgrade_forgets_no_id(empty, tmp_path):
    """MySQL keeps what a step has dropped, where a later one is refused."""
    config = host(tmp_path / "host", empty, ALONE, hooks.versions())
    (tmp_path / "host" / "versions" / "host0001.py").write_text(OWN)
    command.upgrade(config, "host@head")

    assert "orders" in table_names(empty)
    assert VERSION_TABLE not in table_names(empty)
    with Allocator(empty) as ids:
        assert ids.next_id("orders") == 501
    command.upgrade(config, "heads")
    made = command.revision(config, message="next", autogenerate=True, head="host@head")
    assert "allocator_" not in Path(made.path).read_text()
    assert Path(made.path).parent == tmp_path / "host" / "versions"
    with pytest.raises(CommandError, match="allocator_segment holds 1 rows"):
        command.downgrade(config, "allocator@base")
    assert table_names(empty) >= {"allocator_segment", "allocator_token", "allocator_shard"}


@SQLITE
def test_the_first_revision_of_a_host_is_not_written_among_ours(empty, tmp_path, monkeypatch):
    ours = shutil.copytree(hooks.versions(), tmp_path / "ours")  # where a failure does no harm
    monkeypatch.setattr(hooks, "versions", lambda: str(ours))
    config = host(tmp_path / "host", empty, ALONE, str(ours))
    own = tmp_path / "host" / "versions"

    def revision(*words: str) -> None:
        config.cmd_opts = CommandLine().parser.parse_args(["--raiseerr", "revision", "--autogenerate", *words])
        command.upgrade(config, "heads")
        CommandLine().run_cmd(config, config.cmd_opts)

    with pytest.raises(CommandError, match=r"into the installed package allocator; .* --version-path"):
        revision()
    revision("--head", "base", "--branch-label", "yours", "--version-path", str(own))
    revision("--head", "yours@head")
    assert len(list(own.glob("*.py"))) == 2


@ON_POSTGRES
def test_a_branch_uses_the_tables_in_a_later_schema_of_the_search_path(fresh, tmp_path):
    execute(fresh, "CREATE SCHEMA eyes")
    config = host(
        tmp_path / "host", f"{fresh}?options=-csearch_path%3Deyes,public", f"{ALONE}, version_table_schema='eyes'"
    )
    config.set_main_option("version_locations", hooks.versions())
    command.upgrade(config, "heads")

    assert values(fresh, "SELECT tablename FROM pg_tables WHERE schemaname = 'eyes'") == ["alembic_version"]


def test_control_without_our_folder_nobody_knows_the_branch(tmp_path):
    config = host(tmp_path / "host", "sqlite://", ALONE)
    (tmp_path / "host" / "versions" / "host0001.py").write_text(OWN)

    with pytest.raises((CommandError, KeyError), match=REVISIONS[-1]):
        command.upgrade(config, "heads")


# -- statements for a DBA


def run_statements(url: str, words: str) -> None:
    with administrator(url) as connection:
        for statement in words.split(";\n"):
            if statement.strip().strip(";"):
                connection.execute(text(statement.strip().strip(";").replace(":", r"\:")))


def told(*words: str) -> str:
    done = CliRunner().invoke(main, ["db", "upgrade", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.statements
def test_the_statements_for_a_dba_make_the_schema(empty):
    run_statements(empty, told("--sql", "--url", empty))

    assert problems(empty) == []
    with Allocator(empty) as ids:
        assert ids.next_id("order") == 1


def test_the_statements_need_no_database():
    for words in (
        ("--url", "postgresql://nobody@nowhere.invalid/ids"),
        ("--json", "--url", "mysql://nobody@nowhere.invalid/ids"),
    ):
        assert "CREATE TABLE IF NOT EXISTS allocator_segment" in told("--sql", *words)


def test_the_integration_is_the_only_part_that_a_host_imports_for_its_env():
    code = "import sys, allocator.integrations.alembic; print('alembic' in sys.modules)"

    assert output(code) == "False\n"
