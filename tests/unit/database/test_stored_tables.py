"""The options of our tables, which are made when they are asked for."""

from __future__ import annotations

from sqlalchemy import MetaData

from allocator.database.schema.tables import Stored, metadata


def test_no_thread_finds_options_that_are_not_filled_in():
    for table in metadata.sorted_tables:
        made = table.to_metadata(MetaData())
        vars(made).pop("dialect_options", None)

        assert Stored.dialect_options.func(made)["mysql"]["engine"] == "InnoDB"
        assert "dialect_options" not in vars(made)  # until the property is finished


def test_sqlite_reuses_no_number():
    numbered = {"allocator_node", "allocator_ticket", "allocator_token"}

    assert {one.name for one in metadata.sorted_tables if one.dialect_options["sqlite"]["autoincrement"]} == numbered
