"""The image and compose.yaml: what stands in them, and, where Docker can build, what a new user gets.

ALLOCATOR_TEST_PYTHON_IMAGE    the base to build on, as in python:3.13-slim; without it nothing is built
ALLOCATOR_TEST_BUILD_OPTIONS   more words for `docker build`, as in --secret id=pip,src=pip.conf
ALLOCATOR_TEST_POSTGRES_IMAGE  another image for the database
ALLOCATOR_TEST_REQUIRE         with docker in it, a failure instead of a skip
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from click.testing import CliRunner
from sqlalchemy import URL, make_url
from support.documents.rights import SERVICE, granted
from support.processes.patience import until
from support.servers.administrator import execute
from support.servers.available import required
from support.servers.containers import IMAGES
from support.servers.throwaway import free_port

import allocator
from allocator.cli import main
from allocator.cli.options import TOKEN_VARIABLE, URL_VARIABLE

ROOT = Path(allocator.__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()
COMMANDS = re.findall(r"^#     docker compose (.*)$", COMPOSE, re.MULTILINE)
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]

BASE = os.environ.get("ALLOCATOR_TEST_PYTHON_IMAGE")
OPTIONS = shlex.split(os.environ.get("ALLOCATOR_TEST_BUILD_OPTIONS", ""))
OTHER_POSTGRES = os.environ.get("ALLOCATOR_TEST_POSTGRES_IMAGE")
SECONDS = 60.0


# -- what stands in the files


def runtime(instruction: str) -> list[str]:
    """The arguments of an instruction in the last stage."""
    return re.findall(rf"^{instruction} (.*)$", re.split(r"(?m)^FROM ", DOCKERFILE)[-1], re.MULTILINE)


def user() -> str:
    return runtime("USER")[-1].split(":")[0]


def known_variables() -> set[str]:
    options = {parameter.envvar for parameter in main.commands["serve"].params}
    named = {URL_VARIABLE, TOKEN_VARIABLE}
    return options | named | {f"{name}_FILE" for name in named}


def test_every_variable_is_one_that_is_looked_at():
    for text in (DOCKERFILE, COMPOSE):
        named = set(re.findall(r"ALLOCATOR_[A-Z_]+", text))

        assert named
        assert named <= known_variables()


def test_the_service_starts_after_its_tables_and_they_after_the_database():
    conditions = {
        name: {on: wanted["condition"] for on, wanted in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }

    assert conditions == {
        "ids": {"rights": "service_completed_successfully"},
        "tokens": {"rights": "service_completed_successfully"},
        "rights": {"migrate": "service_completed_successfully"},
        "migrate": {"database": "service_healthy"},
        "database": {"password": "service_completed_successfully"},
        "password": {},
    }
    assert "allocator db upgrade\n" in SERVICES["migrate"]["command"][0]


def test_only_the_service_is_published_and_on_this_machine_alone():
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "ids": ["127.0.0.1:8000:8000"]
    }


def test_the_service_knows_no_password_but_its_own():
    of_owner = {name for name, service in SERVICES.items() if any("secret:" in one for one in service["volumes"])}

    assert of_owner == {"tokens", "migrate", "rights", "database", "password"}


def test_the_service_may_write_what_the_page_on_rights_says():
    (text,) = SERVICES["rights"]["command"]
    page = [one for one in granted("postgres", SERVICE, "allocator_service") if "SCHEMA" not in one]

    assert {one for one in page if "SELECT" not in one} == {
        one.strip() for one in re.findall(r"GRANT (?!SELECT).*(?=;)", text)
    }


def script(name: str, folder: Path, role: str) -> str:
    """What a container runs, with folders and a role that are the test's."""
    (text,) = SERVICES[name]["command"]
    for old, new in {"$$": "$", "/run": str(folder), "allocator_service": role, f"chown {user()}": "true"}.items():
        text = text.replace(old, new)
    return str(text)


@pytest.mark.nightly
def test_the_user_of_the_service_draws_ids_and_makes_no_token(new_database, tmp_path):
    """The steps of compose.yaml on another server, also when they are run again."""
    if not shutil.which("psql"):
        pytest.skip("there is no command psql")
    owner, role = make_url(new_database("postgres")), f"compose_{os.getpid()}"
    secret, own = tmp_path / "allocator", tmp_path / "service"
    reached = {"PGHOST": owner.host, "PGPORT": str(owner.port), "PGUSER": owner.username, "PGDATABASE": owner.database}
    urls = {
        "ALLOCATOR_DATABASE_URL_FILE": str(secret / "url"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for folder in (secret, own):
        folder.mkdir()
    try:
        for _ in range(2):
            sh(script("password", tmp_path, role), {})
            (secret / "password").write_text(owner.password or "")
            (secret / "url").write_text(owner.render_as_string(hide_password=False))
            sh(script("migrate", tmp_path, role), urls)
            sh(script("rights", tmp_path, role), reached)
        drawn = make_url((own / "url").read_text())
        service = owner.set(username=drawn.username, password=drawn.password)
        assert (drawn.username, drawn.password) == (role, (own / "password").read_text())
        assert run("next", "order", url=service) == (0, "1\n")
        code, said = run("tokens", "create", "me", url=service)
        assert (code, "permission denied for table allocator_token" in said) == (1, True)
        assert run("tokens", "create", "me", url=owner)[0] == 0
    finally:
        execute(owner.render_as_string(hide_password=False), f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def sh(text: str, environment: dict[str, Any]) -> None:
    done = subprocess.run(
        ["sh", "-euc", text], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def run(*words: str, url: URL) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*words, "--url", url.render_as_string(hide_password=False)])
    return done.exit_code, done.output


def test_no_password_is_written_down():
    environments = [service.get("environment", {}) for service in SERVICES.values()]

    assert {name for named in environments for name in named if "PASSWORD" in name} == {"POSTGRES_PASSWORD_FILE"}
    assert not re.search(r"://\w+:(?!\$)", COMPOSE + DOCKERFILE.replace("user:password@", ""))


def test_the_user_is_not_root_and_may_read_the_url():
    assert user().isdecimal()
    assert int(user()) > 0
    assert f"--uid {user()} " in DOCKERFILE
    assert f"chown {user()} " in COMPOSE


def test_what_is_copied_and_installed_is_there():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()}
    extras = re.findall(r"\.whl\)\[([\w,]+)\]", DOCKERFILE)[0].split(",")

    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert (
        set(extras) <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    )


@pytest.mark.parametrize(("given", "port"), [(None, 8000), ("9000", 9000), ("tcp://10.96.12.7:8000", 8000)])
def test_the_image_asks_for_its_health_where_the_service_listens(given, port, monkeypatch):
    """Kubernetes sets the last value where a Service is called `allocator`; the service ignores it too."""
    monkeypatch.delenv("ALLOCATOR_PORT", raising=False)
    if given:
        monkeypatch.setenv("ALLOCATOR_PORT", given)
    asked: list[str] = []
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", lambda self, url, timeout: asked.append(url))
    (words,) = re.findall(r"^HEALTHCHECK .*? CMD (.*\])$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)
    exec(json.loads(words)[2], {})

    assert asked == [f"http://127.0.0.1:{port}/healthz"]


# -- what they do


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def done(*words: str) -> str:
    """What the command printed; it must succeed."""
    ended = docker(*words)
    assert ended.returncode == 0, f"docker {shlex.join(words)}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout.strip()


def hindrance() -> str | None:
    """Why nothing can be built and run here."""
    if not BASE:
        return "ALLOCATOR_TEST_PYTHON_IMAGE names no base, as in python:3.13-slim"
    if not shutil.which("docker"):
        return "there is no command docker"
    for words in (["info"], ["buildx", "version"], ["compose", "version"]):
        if docker(*words).returncode:
            return f"`docker {' '.join(words)}` fails"
    for image in (BASE, OTHER_POSTGRES or IMAGES["postgres"]):
        if docker("image", "inspect", image).returncode and docker("pull", "--quiet", image).returncode:
            return f"there is no image {image}, and it cannot be pulled"
    return None


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The name of the image, built as a user would."""
    if reason := hindrance():
        if "docker" in required():
            pytest.fail(f"required by ALLOCATOR_TEST_REQUIRE, but {reason}", pytrace=False)
        pytest.skip(reason)
    name = f"allocator-test-{os.getpid()}"
    done("build", "--quiet", "--tag", name, "--build-arg", f"PYTHON_IMAGE={BASE}", *OPTIONS, ".")
    yield name
    docker("image", "rm", name)


class Project:
    """compose.yaml under a name and on a port of its own, with an image that is there."""

    def __init__(self, image: str, folder: Path) -> None:
        self.port = free_port()
        self.changes = folder / "changes.yaml"
        self.changes.write_text(changes(image, self.port))
        self.name = f"allocator-test-{os.getpid()}-{self.port}"

    def words(self, words: str) -> list[str]:
        files = ["--file", str(ROOT / "compose.yaml"), "--file", str(self.changes)]
        return ["compose", "--project-name", self.name, *files, *shlex.split(words)]

    def run(self, words: str) -> str:
        return done(*self.words(words))

    def draw(self, token: str | None) -> tuple[int, Any]:
        """The status and the body of what the header of the file asks for."""
        path = re.findall(r"http://127\.0\.0\.1:8000(/v1/\S+)", COMPOSE)[0]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "POST", f"http://127.0.0.1:{self.port}{path}", headers=headers, retries=False, timeout=10
            )
            return answer.status, json.loads(answer.data)

    def first(self, token: str) -> int:
        """The first id, as soon as there is an answer."""
        end = time.monotonic() + SECONDS
        while True:
            try:
                status, body = self.draw(token)
            except urllib3.exceptions.HTTPError:
                assert time.monotonic() < end, docker(*self.words("logs")).stdout
                time.sleep(0.2)
                continue
            assert status == 200, body
            return int(body["ids"][0])

    def close(self) -> None:
        docker(*self.words("down --volumes --timeout 1"))


def changes(image: str, port: int) -> str:
    built = f"{{ image: {image}, build: !reset null }}"
    text = f"""services:
  ids: {{ image: {image}, build: !reset null, ports: !override ["127.0.0.1:{port}:8000"] }}
  tokens: {built}
  migrate: {built}
"""
    if not OTHER_POSTGRES:
        return text
    # it takes the variables of the official image, though perhaps not those that name files
    return f"""{text}
  password: {{ image: {OTHER_POSTGRES} }}
  rights: {{ image: {OTHER_POSTGRES} }}
  database:
    image: {OTHER_POSTGRES}
    entrypoint: [sh, -c, 'POSTGRES_PASSWORD=$$(cat $$POSTGRES_PASSWORD_FILE) exec docker-entrypoint.sh postgres']
"""


@pytest.fixture
def project(image: str, tmp_path: Path) -> Iterator[Project]:
    made = Project(image, tmp_path)
    yield made
    made.close()


@pytest.fixture
def ask(image: str) -> Callable[..., str]:
    """Runs another program than allocator in the image."""
    return lambda program, *words: done("run", "--rm", "--network", "none", "--entrypoint", program, image, *words)


@pytest.mark.nightly
def test_a_new_user_draws_ids_as_the_header_says(project: Project):
    create, start = COMMANDS
    token = project.run(create)
    project.run(start)

    drawn = project.first(token)
    assert project.draw(None)[0] == 401

    project.run("stop ids")
    assert json.loads(project.run("ps --all --format json ids"))["ExitCode"] == 0

    project.run("down")  # without --volumes: the ids go on, and the token is good
    project.run(start)
    assert project.first(token) > drawn


@pytest.mark.nightly
def test_without_a_token_nobody_comes_in_from_outside(project: Project):
    create, start = COMMANDS
    docker(*project.words(start))  # it waits for a service that does not start, in vain
    with pytest.raises(urllib3.exceptions.HTTPError):
        project.draw(None)

    token = project.run(create)

    assert project.first(token) == 1


@pytest.mark.nightly
def test_the_image_runs_as_nobody_special(image: str, ask: Callable[..., str]):
    config = json.loads(done("image", "inspect", image))[0]["Config"]

    assert ask("id", "-u") == user()
    assert config["Entrypoint"] == ["allocator"]
    assert config["Cmd"] == ["serve"]
    assert config["StopSignal"] == "SIGTERM"
    assert list(config["ExposedPorts"]) == ["8000/tcp"]
    assert {line.split("=")[0] for line in config["Env"] if "ALLOCATOR" in line} == {"ALLOCATOR_HOST"}


@pytest.mark.nightly
def test_nothing_of_the_build_is_left(ask: Callable[..., str]):
    code = "import importlib.util as i; print(*(n for n in ('pip', 'hatchling', 'allocator') if i.find_spec(n)))"

    assert ask("python", "-c", code) == "allocator"
    assert ask("sh", "-c", "ls -d /source /tools /wheels /etc/pip.conf 2>/dev/null || true") == ""


@pytest.mark.nightly
def test_no_ids_come_from_a_file_that_would_go_away(image: str):
    refused = docker("run", "--rm", image, "next", "order")

    assert refused.returncode == 1
    assert "unable to open database file" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.nightly
def test_worker_run_is_process_1_of_a_container(image: str):
    """Orphans are reaped, signals are passed on, and the exit code is kept."""
    script = (
        "(setsid sh -c 'exit 0' &); trap 'exit 9' TERM; echo worker $WORKER_ID of $PPID; while :; do sleep 0.1; done"
    )
    words = ["worker", "run", "--url", "sqlite:////tmp/ids.db", "--space", "shop", "--", "sh", "-c", script]
    name = f"allocator-test-worker-{os.getpid()}"
    docker("run", "--detach", "--name", name, image, *words)
    try:
        assert until(lambda: "worker 0 of 1\n" in docker("logs", name).stdout, SECONDS), docker("logs", name)
        assert until(lambda: " Z" not in done("top", name, "-eo", "pid,stat"), SECONDS)
        docker("kill", "--signal", "TERM", name)

        assert done("wait", name) == "9"
    finally:
        docker("rm", "--force", name)
