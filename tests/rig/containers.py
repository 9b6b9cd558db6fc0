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
        container.start()
    except DockerException as error:  # no engine, or no image
        raise LookupError(f"testcontainers cannot start {image} ({str(error).splitlines()[0][:120]})") from error
    except OSError as error:
        raise LookupError(f"testcontainers cannot reach Docker ({error})") from error
    url = container.get_connection_url()
    engine = container.get_wrapped_container()
    return Running(
        url.replace("mysql+", "mariadb+", 1) if kind == "mariadb" else url,
        f"testcontainers {image}",
        container.stop,
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
