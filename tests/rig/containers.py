"""Servers in Docker, by testcontainers."""

from __future__ import annotations

import os

from rig.running import Running

IMAGES = {"postgres": "postgres:18", "mysql": "mysql:9", "mariadb": "mariadb:11"}


def from_container(kind: str) -> Running:
    from docker.errors import DockerException

    image = os.environ.get(f"ALLOCATOR_TEST_{kind.upper()}_IMAGE", IMAGES[kind])
    try:
        container = make(kind, image)
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
        engine.pause,
        engine.unpause,
    )


def make(kind: str, image: str):
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the rig stops what it starts
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
