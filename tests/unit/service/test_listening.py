"""The file of a Unix socket: who may connect to it, and what is done with an old one."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from stat import S_IMODE

import pytest
from uvicorn import Config

from allocator.errors import InvalidSetting
from allocator.service.listening import bind_unix, listening
from allocator.service.settings import ServeSettings

IN_USE = r"cannot listen on .*ids.sock: Address already in use"


def test_the_owner_and_the_group_may_connect(tmp_path):
    with closing(bind_unix(tmp_path / "ids.sock")):
        assert S_IMODE((tmp_path / "ids.sock").stat().st_mode) == 0o660


def test_the_file_of_a_service_that_died_is_replaced(tmp_path):
    bind_unix(tmp_path / "ids.sock").close()

    with closing(bind_unix(tmp_path / "ids.sock")), closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(tmp_path / "ids.sock"))


def test_that_of_a_running_service_is_not(tmp_path):
    path = tmp_path / "ids.sock"
    with closing(bind_unix(path)), pytest.raises(InvalidSetting, match=IN_USE):  # though no worker accepts yet
        bind_unix(path)


def test_the_file_goes_at_the_end_unless_it_is_that_of_a_later_service(tmp_path):
    path = tmp_path / "ids.sock"
    settings = ServeSettings(("sqlite://",), unix=str(path))
    with listening(Config(None), settings) as bound, closing(bound):
        assert path.exists()
    assert not path.exists()

    with listening(Config(None), settings) as bound, closing(bound):
        os.utime(path, ns=(0, 0))  # the same inode, made at another time
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none/ids.sock", "No such file or directory"), ("file", "Address already in use"), ("x" * 200, "too long")],
)
def test_a_place_that_cannot_be_had_is_an_error(tmp_path, name, reason):
    (tmp_path / "file").write_text("kept")

    with pytest.raises(InvalidSetting, match=f"cannot listen on .*{reason}"):
        bind_unix(tmp_path / name)

    assert (tmp_path / "file").read_text() == "kept"
