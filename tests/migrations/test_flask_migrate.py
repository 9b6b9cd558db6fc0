"""Flask-SQLAlchemy and Flask-Migrate: keys of our ids, and `flask db migrate` beside our tables."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped

from allocator import Allocator
from allocator.integrations.alembic import include_name
from allocator.integrations.sqlalchemy import primary_key

flask = pytest.importorskip("flask")
flask_migrate = pytest.importorskip("flask_migrate")
flask_sqlalchemy = pytest.importorskip("flask_sqlalchemy")
pytest.importorskip("alembic.runtime.plugins", reason="Alembic has plugins from 1.18 on")

WITHOUT = {"autogenerate_plugins": ["alembic.autogenerate.*", "~alembic.autogenerate.allocator"]}


@pytest.fixture
def loggers():
    """`env.py` of Flask-Migrate sets the levels and handlers of all loggers."""
    before = logging.root.handlers[:], logging.root.level
    disabled = {name: logging.getLogger(name).disabled for name in logging.root.manager.loggerDict}
    yield
    logging.root.handlers[:], logging.root.level = before
    for name, was in disabled.items():
        logging.getLogger(name).disabled = was


@pytest.mark.usefixtures("loggers")
@pytest.mark.filterwarnings("ignore:'get_engine':DeprecationWarning")  # in the env.py of Flask-Migrate
@pytest.mark.parametrize(
    ("options", "dropped"),
    [({}, False), (WITHOUT | {"include_name": include_name()}, False), (WITHOUT, True)],
    ids=["plugin", "include_name", "control"],
)
def test_flask_db_migrate_leaves_our_tables_alone(tmp_path: Path, options: dict[str, Any], dropped: bool):
    url = f"sqlite:///{tmp_path}/shop.db"
    with Allocator(url) as ids:
        ids.next_id("order")

        class Base(DeclarativeBase):
            pass

        db = flask_sqlalchemy.SQLAlchemy(model_class=Base)

        class Order(db.Model):
            id: Mapped[int] = primary_key(ids)

        app = flask.Flask("shop")
        app.config["SQLALCHEMY_DATABASE_URI"] = url
        db.init_app(app)
        flask_migrate.Migrate(app, db, directory=str(tmp_path / "migrations"), **options)
        with app.app_context():
            flask_migrate.init()
            flask_migrate.migrate()
            flask_migrate.upgrade()
            written = "".join(path.read_text() for path in (tmp_path / "migrations" / "versions").glob("*.py"))

            assert "create_table('order'" in written
            assert "autoincrement=False" in written
            assert ("drop_table('allocator_segment')" in written) is dropped
            if not dropped:
                db.session.add(order := Order())
                db.session.commit()
                assert order.id == 2
            db.engine.dispose()
