"""Servers in Docker, by testcontainers."""

import os

from support.servers.throwaway import POSTGRES_BIN, Running

DATA = {"postgres": "/var/lib/postgresql", "mysql": "/var/lib/mysql", "mariadb": "/var/lib/mysql"}
PAUSE_ATTEMPTS = 50
IMAGES = {"postgres": "postgres:18", "mysql": "mysql:9", "mariadb": "mariadb:11"}


def from_container(kind: str, options: tuple[str, ...] = ()) -> Running:
    from docker.errors import DockerException

    if kind == "postgres" and POSTGRES_BIN in os.environ:
        raise LookupError(f"{POSTGRES_BIN} is set")
    image = os.environ.get(f"ALLOCATOR_TEST_{kind.upper()}_IMAGE", IMAGES[kind])
    try:
        container = make(kind, image)
        if options:
            container.with_command(" ".join(options))
        if "ALLOCATOR_TEST_ON_DISK" not in os.environ:
            container.with_tmpfs_mount(DATA[kind])  # thrown away anyway
    except (DockerException, OSError) as error:
        raise LookupError(f"testcontainers finds no Docker engine ({first_line(error)})") from error
    try:
        container.start()
    except (DockerException, OSError) as error:
        container.get_docker_client().client.close()
        raise LookupError(f"testcontainers cannot start {image} ({first_line(error)})") from error
    url = container.get_connection_url()
    engine = container.get_wrapped_container()
    return Running(
        url.replace("mysql+", "mariadb+", 1) if kind == "mariadb" else url,
        f"testcontainers {image}",
        lambda: remove(container),
        lambda: pause(engine),
        engine.unpause,
    )


def pause(engine) -> None:
    """On a busy machine Docker gives up too early when a process waits for its disk."""
    from docker.errors import APIError

    for _ in range(PAUSE_ATTEMPTS - 1):
        try:
            return engine.pause()
        except APIError as error:
            if "unable to freeze" not in str(error):
                raise
    return engine.pause()


def make(kind: str, image: str):
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the tests stop what they start
    if kind == "postgres":
        from testcontainers.community.postgres import PostgresContainer

        return PostgresContainer(image, driver="psycopg")
    from testcontainers.community.mysql import MySqlContainer

    return MySqlContainer(image, dialect="pymysql", username="root")


def remove(container) -> None:
    container.stop()
    container.get_docker_client().client.close()


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
