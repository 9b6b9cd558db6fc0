"""The command line as a user types it."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import create_engine
from support.kit import ON_POSTGRES, ON_SERVERS, SQLITE, commands
from support.servers.administrator import execute
from support.transcripts import wrong_commands

from allocator import Allocator, AsyncAllocator, PublicIds
from allocator.cli import main
from allocator.cli.output import show
from allocator.database.store import Database
from allocator.database.tables import REVISIONS
from allocator.errors import DatabaseRefused, InvalidArgument, MaxValueWentBack, UnknownTag
from allocator.schemes.tag import Tag

KEY, OTHER = bytes(range(32)).hex(), "ab" * 16
"""Of public ids: the one in use, and another."""


def run(*words: str, url: str | None = None) -> Result:
    environment = {"ALLOCATOR_DATABASE_URL": url} if url else {}
    return CliRunner().invoke(main, list(words), env={"ALLOCATOR_PUBLIC_KEY": KEY, **environment})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALLOCATOR_DATABASE_URL", raising=False)
    return tmp_path


# -- what commands print, one after the other, on a database of their own

TRANSCRIPTS = {
    "exactly as many ids as asked for are claimed": """
$ next order -n 3
1
2
3
$ tags list --json
[{"tag": "order", "max_value": "3", ...}]
$ next order --count 2 --json
{"tag": "order", "ids": ["4", "5"]}
""",
    "tags are made, listed and changed": """
$ tags create order --step 10 --max-step 20 --start-after 99
created order: the first id is 100
$ tags set order --limit 500 --start-after 200 --json
{"tag": "order", "max_value": "200", "step": 10, ... "used": 0.4, "remaining": "300", "claimed_at": null}
$ next order
201
$ tags list order --json
[{"tag": "order", "max_value": "201", ... "limit": "500", ... "remaining": "299", "claimed_at": "..."}]
""",
    "tags are chosen by name, and a misspelt one is answered with similar ones": """
$ tags create order-eu --start-after 10
created order-eu: the first id is 11
$ tags create order-us
created order-us: the first id is 1
$ tags create user
created user: the first id is 1
$ tags list order-eu --json
[{"tag": "order-eu", "max_value": "10", ...}]
1$ tags list order_eu
error: tag 'order_eu' does not exist; similar tags: order-eu, order-us
1$ tags delete order_eu
error: tag 'order_eu' does not exist; similar tags: order-eu, order-us
1$ next usr --no-create
error: tag 'usr' does not exist; similar tags: user
1$ tags list bill
error: tag 'bill' does not exist; ...create it with: allocator tags create bill
""",
    "a tag that never gave an id is deleted at once, unless it was given a start": """
$ tags create started --start-after 5000
created started: the first id is 5001
1$ tags delete started
error: tag 'started' may have issued ids up to 5000; ...
$ tags create order
created order: the first id is 1
$ tags delete order
deleted order
1$ tags delete order
error: tag 'order' does not exist; ...
""",
    "a tag that gave ids is deleted only with --yes, and the last id is said": """
$ next order -n 2
1
2
1$ tags delete order
error: tag 'order' may have issued ids up to 2; they repeat if its name is used again; to confirm, add --yes
$ next order
3
$ tags delete order --yes
deleted order; to use the name again: allocator tags create order --start-after 3
$ tags create order --start-after 3
created order: the first id is 4
$ next order
4
1$ tags delete order --json
{..."message": "... add --yes"...}
$ tags delete order --json --yes
{"deleted": "order", "last": "4"}
""",
    "tokens as docs/service.md makes them, as JSON, and refused": """
$ tokens create all --json
{... "tags": ["*"]...
...
$ tokens list --json
[{... "name": "all", ... ["draw"], "tags": ["*"], ...
1$ tokens create a --days -1
error: days must be above 0...
1$ tokens revoke 7
error: there is no token 7...
""",
}


@SQLITE
@pytest.mark.parametrize("story", TRANSCRIPTS)
def test_commands_print(fresh, story):
    assert wrong_commands(fresh, TRANSCRIPTS[story]) == []


@SQLITE
def test_control_another_code_or_output_is_noticed(fresh):
    assert len(wrong_commands(fresh, "1$ next order\n1\n$ next order\n1\n$ nope\n...\n$ next order\n3\n")) == 3


@SQLITE
def test_what_the_doctor_finds_is_1_where_it_is_a_danger_or_an_outage_and_how_to_mend_it_is_said(fresh):
    run("next", "order", url=fresh)
    assert wrong_commands(fresh, '$ doctor --json\n{"findings": []}\n') == []
    execute(fresh, "UPDATE allocator_segment SET failover_gap = 0")
    assert wrong_commands(fresh, "$ doctor\nnote    failover-gap-zero (sqlite...\n...\n") == []
    execute(fresh, "UPDATE allocator_segment SET shard_step = 3")
    done = run("doctor", url=fresh)
    listed = json.loads(run("doctor", "--json", url=fresh).output)["findings"]

    assert done.exit_code == 1
    for words in ("danger  tag-of-another-lane (sqlite", "'order' has offset 1 and step 3", "fix: stop all processes"):
        assert words in done.output
    assert {*listed[0]} == {"name", "severity", "found", "mend", "database"}
    away = run("doctor", url="postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert (away.exit_code, away.output[:20]) == (1, "outage  unreachable ")


@SQLITE
def test_an_expired_token_is_listed_as_that(fresh):
    secret = run("tokens", "create", "billing", url=fresh).output.strip()
    execute(fresh, "UPDATE allocator_token SET expires_at = '2020-01-01 00:00:00'")
    listed = run("tokens", "list", url=fresh).output

    assert listed.splitlines()[1].split()[-1] == "yes"
    assert secret not in listed
    assert json.loads(run("tokens", "list", "--json", url=fresh).output)[0]["expired"]


# -- deleting a tag, which cannot be undone


@SQLITE
def test_a_user_that_may_not_delete_closes_no_tag(fresh):
    with closing(Allocator(fresh)) as ids:
        ids.reserve("order", 5)
        (database,) = ids.tags.databases()
        database.remove_tag = Mock(side_effect=DatabaseRefused("no right to delete"))
        with pytest.raises(DatabaseRefused, match="no right"):
            ids.tags.delete("order", 5)

        assert ids.reserve("order", 5)[-1] == 10


@SQLITE
def test_the_start_of_a_deleted_tag_is_above_ids_that_a_failover_forgot(fresh):
    run("next", "order", url=fresh)
    execute(fresh, "UPDATE allocator_shard SET server_run = 'elsewhere'")

    assert int(run("tags", "delete", "order", "--yes", url=fresh).output.split()[-1]) > 1 << 22


def test_a_row_that_is_open_is_not_deleted(fresh):
    with closing(Allocator(fresh)) as ids, closing(Database(fresh)) as database:
        ids.reserve("order", 5)

        assert not database.remove_tag("order")
        assert database.close_tag(Tag("order", 5))
        assert database.remove_tag("order")


@SQLITE
def test_a_process_that_still_draws_from_a_deleted_tag_stops(fresh):
    with closing(Allocator(fresh, step=1, max_step=1)) as ids:
        ids.reserve("order", 5)
        run("tags", "delete", "order", "--yes", url=fresh)

        with pytest.raises((MaxValueWentBack, UnknownTag)):
            ids.reserve("order", 5)


# -- files, outputs, refusals


READING = "tags list,tags set order --step 5,next order --no-create,db check,worker list,tokens list,doctor,shards list"


def test_what_only_reads_makes_no_file_and_says_so(here):
    for words in READING.split(","):
        done = run(*words.split(), "--url", "sqlite:///other.db")

        assert (done.exit_code, list(here.iterdir())) == (1, []), words
        assert f"there is no file {here}/other.db" in done.output, words
    assert run("tags", "list", url="sqlite:///other.db").stderr == (
        f"error: there is no file {here}/other.db; draw an id to create it, or name another database "
        "with --url or ALLOCATOR_DATABASE_URL\n"
    )


def typed(words: str, here: Path) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m allocator {words}"
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "ALLOCATOR_DATABASE_URL": "sqlite:///allocator.db",
    }
    return subprocess.run(  # a shell opens and closes what a program writes to
        line, shell=True, cwd=here, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_cannot_be_written_is_one_sentence(here):
    with closing(Allocator(f"sqlite:///{here}/allocator.db")) as ids:
        ids.next_id("order")
    for words in ("next order -n 9999", "next order --json", "tags list"):
        done = typed(f"{words} > /dev/full", here)

        assert done.returncode == 1, words
        assert len(done.stderr.splitlines()) == 1, words
        assert "cannot write the output: No space left on device" in done.stderr
        assert done.stderr.startswith('{"error"' if "--json" in words else "error: ")


def test_a_reader_that_has_gone_is_no_error_to_tell(here):
    os.mkfifo(here / "reader")
    assert typed("next order", here).stderr == (
        f"made a new SQLite database at {here}/allocator.db: its ids begin at 1; if there was one before, stop and "
        "put it back\n"
    )
    for count in (1, 100_000):
        typed(f"next order -n {count} 2> words > reader & : < reader; wait $!; echo $? > code", here)

        assert (here / "words").read_text() == "", count
        assert (here / "code").read_text() == "1\n", count


SEVERAL = "several URLs have commas between them; "
REFUSED = {
    "public decode ch7CeG9133OA2RkV": "was altered or mistyped",
    "next a,b": "error: a tag is 1 to 64 of the characters",
    "next order -n 0": "error: count must be 1 to 10000000, got 0",
    "next order --no-create": "error: tag 'order' does not exist",
    "next order --url sqlite://data/ids.db": "error: the URL of a file has three slashes: sqlite:///data/ids.db",
    "doctor --url http://127.0.0.1:1": "127.0.0.1:1 is a service; this needs the URL of the database itself",
    "db check --url http://127.0.0.1:1": "is a service; this needs the URL of the database itself",
    "next order --url oracle://u:s3cret@h/x": "known are sqlite, postgresql, mysql, mariadb",
    "tags set order --step 5": "error: tag 'order' does not exist",
    "tags create order --start-after-column nowhere.id": "error: there is no column nowhere.id",
    "shards add mysql://h --slot 2": "names no database",
    "shards add sqlite:////no/such/folder/x.db --slot 2": "are no fleet; make one first",
}
MISUSED = {
    **dict.fromkeys(("next", "next order --scheme meteor", "inspect 5 --scheme meteor"), ""),
    "tags create x --limit 5 --beside-column orders.id": "",
    "next sqlite:///ids.db": "a URL is given by --url: main next --url URL",
    "tags list --json sqlite:///ids.db": "a URL is given by --url: main tags list --url URL",
    "next order --url sqlite:///one.db,sqlite:///two.db": f"{SEVERAL}give --url once for each",
    "tags --url sqlite:///ids.db list": "An option comes after its command: main tags COMMAND --url",
    "serve --open sqlite:///ids.db": "a URL is given by --url: main serve --url URL",
    "shards make --slots 65": "is not in the range",
    "serve --compat twitter": "'twitter' is not one of 'leaf', 'tinyid'",
    "serve --certificate /etc/passwd": "--certificate and --key need each other",
    "serve --url=": "--url is empty; give it the URL of a database",
    "serve --host ' '": "--host is empty, which would be every address",
    "serve --host=": "--host is empty, which would be every address",
    "serve --timeout 0": "timeout must be",
    "serve --url https://ids.example.org": "--url must be a database",
}


def test_a_refusal_is_one_sentence_and_exit_code_1_and_what_is_not_understood_is_2(here, subtests):
    url = f"sqlite:///{here}/ids.db"
    run("tags", "create", "other", url=url)  # or there would be no file to look into
    for words, sentence in (REFUSED | MISUSED).items():
        with subtests.test(words=words):
            done = run(*shlex.split(words), url=url)
            is_usage = "Usage: " in done.stderr

            assert (done.exit_code, done.stdout) == (2 if is_usage else 1, ""), words
            assert sentence in done.stderr, words
            assert "s3cret" not in done.stderr
            if words in REFUSED:
                assert done.stderr.count("\n") == 1, words
                message = json.loads(run(*words.split(), "--json", url=url).stderr)["message"]
                assert sentence.removeprefix("error: ") in message
            else:
                assert is_usage or words.startswith("serve"), words
    said = run("next", "x", url="sqlite:///a,sqlite:///b").stderr
    assert f"{SEVERAL}separate them by blanks in ALLOCATOR_DATABASE_URL\n" in said


EMPTY: list[tuple[dict[str, Any], str]] = [
    ({}, "no URL of a database was given, but None, as by an environment variable that is not set"),
    ({"shards": ["sqlite:///mine.db", None]}, "no URL of a database was given, but None"),
    ({"database": ""}, "the URL of the database is empty, as by an environment variable without a value"),
    ({"database": "sqlite:///"}, "names no file"),
    ({"database": create_engine("sqlite:///")}, "names no file"),
    ({"database": [""]}, "a list of servers may hold only addresses"),
    ({"database": "http://localhost", "token": ""}, "token must be printable ASCII characters"),
]


def test_every_command_wants_the_url_of_its_database(here):
    """Ids out of a file that a typo made would begin at 1 again."""
    (here / "empty").touch()
    named, variable = "sqlite:///ids.db", "ALLOCATOR_DATABASE_URL"
    no_url, no_variable = "--url is empty; give it the URL of a database", f"{variable} is empty; set it to the URL of"
    mistakes = (
        ((), {}, f"no database is named; give its URL by --url or {variable}, such as --url sqlite:///ids.db"),
        (("--url", ""), {variable: named}, no_url),
        ((), {variable: ""}, no_variable),
        ((), {f"{variable}_FILE": "empty"}, f"empty, named by {variable}_FILE, is empty"),
    )
    for name, command in COMMANDS.items():
        if command.name in WITHOUT_A_DATABASE:
            continue
        arguments = ["1" for parameter in command.params if isinstance(parameter, click.Argument)]
        needed = [f"{p.opts[0]}=2" for p in command.params if isinstance(p, click.Option) and p.required]
        code = 125 if name.endswith("worker run") else 2
        for words, environment, sentence in mistakes:
            done = CliRunner().invoke(main, [*name.split()[1:], *needed, *words, *arguments], env=environment)

            assert done.exit_code == code, (name, words)
            assert [path.name for path in here.iterdir()] == ["empty"], (name, words)
            assert sentence in " ".join(done.stderr.split()), (name, words, done.stderr)


def test_nothing_that_is_empty_means_a_default(here):
    """In a deployment it is a variable that was not set: ids would begin at 1 again."""
    for kind in (Allocator, AsyncAllocator):
        for given, sentence in EMPTY:
            with pytest.raises(InvalidArgument, match=sentence):
                kind(**given)


NO_SCHEMA = """
1$ next order
error: ...run: allocator db upgrade
1$ db check
...is at revision none (the newest is REVISION)
...run: allocator db upgrade
$ db upgrade --json
{"revision": "REVISION"}
$ db check
...is at revision REVISION (the newest)
the tables are correct
$ db check --json
{"revision": "REVISION", "newest": "REVISION", "problems": []}
$ next order
1
"""


@ON_SERVERS
def test_a_server_needs_its_schema_first(empty):
    assert wrong_commands(empty, NO_SCHEMA, REVISION=REVISIONS[-1]) == []


OF_COLUMNS = """
$ tags create --start-after-column orders.id order
created order: the first id is 1
order: limit 2,147,483,647, the greatest value of orders.id (INTEGER)
"""


@ON_POSTGRES
def test_a_limit_that_follows_a_column_is_said(fresh):
    execute(fresh, "CREATE TABLE orders (id serial)")
    assert wrong_commands(fresh, OF_COLUMNS) == []


COMMANDS = {f"allocator {name}": one for name, one in commands()}
WITHOUT_A_DATABASE = {"inspect", "decode"}
WITHOUT_JSON = {"allocator serve", "allocator worker run"}
"""They print nothing of their own."""


def test_every_command_explains_itself_and_its_variables():
    for name, command in COMMANDS.items():
        assert command.help, name
        given = [one for one in command.params if isinstance(one, click.Option)]
        options = {word for one in given for word in one.opts}
        assert ("--json" in options) == (name not in WITHOUT_JSON), name
        assert "--url" in options or command.name in WITHOUT_A_DATABASE, name
        assert [one.name for one in given if not one.help] == [], name
        help_ = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
        variables = {str(one.envvar) for one in given if one.envvar}
        variables |= {"ALLOCATOR_DATABASE_URL"} if "--url" in options else set()
        assert sorted(one for one in variables if f"[env var: {one}" not in help_) == [], name


def test_objectids_need_no_database():
    lines = run("next", "--scheme", "objectid", "-n", "3").output.split()

    assert ({len(one) for one in lines}, len({*lines})) == ({24}, 3)


READ = {
    "5016762319896585": ["meteor: likely", "second       292014", "2020-12-13 09:06:54+00:00", "snowflake: likely"],
    "175928847299117063 --layout discord": ["discord: likely", "worker       1"],
}
"""Others are judged by unit/schemes/test_inspection."""


def test_ids_explain_themselves():
    for words, said in READ.items():
        done = run("inspect", *words.split())

        assert done.exit_code == 0, words
        assert [text for text in said if text not in done.output] == []
        assert json.loads(run("inspect", *words.split(), "--json").output)["id"] == words.split()[0]
    for wrong in ("0", "-5", ""):
        done = run("inspect", "--", wrong)
        assert (done.exit_code, done.stderr.startswith("error: an id is")) == (1, True), wrong


@SQLITE
def test_what_rows_hold_does_not_command_the_terminal(fresh):
    """Any client of the database may have written them."""
    values = "'\x1b[31m\x9b2J\nnode', 1, '\u202e1', CURRENT_TIMESTAMP"
    execute(fresh, f"INSERT INTO allocator_node (host, process, version, started_at) VALUES ({values})")
    said = run("worker", "list", url=fresh).output

    assert "\\x1b[31m\\x9b2J\\nnode" in said
    assert not [one for one in said if not one.isprintable() and one != "\n"]
    findings = click.Command("findings", callback=lambda: show({}, "of\x1b[2J\na row"))
    assert CliRunner().invoke(findings).output == "of\\x1b[2J\na row\n"


def test_a_service_of_kubernetes_called_allocator_sets_no_port(monkeypatch):
    """It names the variables of a Service so."""
    for value, port in (("tcp://10.96.12.7:9000", 8000), ("9000", 9000)):
        monkeypatch.setenv("ALLOCATOR_PORT", value)
        assert main.commands["serve"].make_context("serve", ["--url", "sqlite:///ids.db"]).params["port"] == port


# -- `allocator public`, as a user types it


def test_what_an_application_encoded_is_decoded_by_the_keys_of_a_variable_or_a_file(here):
    def decoded(*words: str, key: str | None = KEY, **environment: str) -> str:
        done = CliRunner().invoke(main, ["public", "decode", *words], env={"ALLOCATOR_PUBLIC_KEY": key, **environment})
        return done.output if done.exit_code == 0 else f"{done.exit_code} {done.stderr}"

    public = PublicIds(KEY, prefix="ord_")
    texts = [public.encode(id_) for id_ in (1, 2)]
    assert json.loads(decoded(*texts, "--prefix", "ord_", "--json")) == {"ids": ["1", "2"]}
    old, new = (PublicIds(key).encode(7) for key in (OTHER, KEY))
    assert decoded(old, new, key=f"{KEY} {OTHER}") == "7\n7\n"
    (here / "key").write_text(f"{KEY}\n")
    assert decoded(new, key=None, ALLOCATOR_PUBLIC_KEY_FILE="key") == "7\n"
    said = decoded("x", key=" ")
    assert (said[0], "ALLOCATOR_PUBLIC_KEY is not set" in said) == ("2", True)
