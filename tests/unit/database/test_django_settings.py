"""The database of a Django application, as a URL: one row for each way to name it."""

import pytest
from sqlalchemy import make_url

from allocator.database.address import address_of
from allocator.database.django.database_setting import url_of
from allocator.errors import InvalidDatabase

SERVER = {"NAME": "shop", "USER": "ada", "PASSWORD": "p@ss/%", "HOST": "db.example.org", "PORT": "5433"}

NAMED = [
    ("sqlite", {"NAME": ":memory:"}, "sqlite://"),
    ("sqlite", {"NAME": "file:memorydb_default?mode=memory&cache=shared"}, "sqlite://"),
    ("sqlite", {"NAME": "/srv/db.sqlite3"}, "sqlite:////srv/db.ids.sqlite3"),
    ("sqlite", {"NAME": "file:/srv/db.sqlite3?mode=rwc"}, "sqlite:////srv/db.ids.sqlite3"),
    ("postgresql", SERVER, "postgresql://ada:p%40ss%2F%25@db.example.org:5433/shop"),
    ("postgresql", {"NAME": "shop", "HOST": "", "PORT": "", "USER": ""}, "postgresql:///shop"),
    ("postgresql", {"NAME": "shop", "HOST": "/run/pg"}, "postgresql:///shop?host=%2Frun%2Fpg"),
    ("postgresql", {"OPTIONS": {"service": "shop"}}, "postgresql://?service=shop"),
    (
        "postgresql",
        {"NAME": "shop", "USER": "ada", "HOST": "a,b", "PORT": "5432,5433", "OPTIONS": {"target_session_attrs": "any"}},
        "postgresql://ada@/shop?host=a%2Cb&port=5432%2C5433&target_session_attrs=any",
    ),
    ("postgresql", {"NAME": "x", "HOST": "a,b", "PORT": 5432}, "postgresql:///x?host=a%2Cb&port=5432%2C5432"),
    ("mysql", {"OPTIONS": {"read_default_file": "/shop.cnf"}}, "mysql://?read_default_file=%2Fshop.cnf"),
    ("mysql", {"NAME": "shop", "HOST": "db", "PORT": 3307}, "mysql://db:3307/shop"),
    ("mysql", {"NAME": "shop", "HOST": "/run/my.sock"}, "mysql:///shop?unix_socket=%2Frun%2Fmy.sock"),
    (
        "postgresql",
        {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True, "prepare_threshold": None}},
        "postgresql://db/shop?sslmode=require",
    ),
    *(
        ("mysql", {"NAME": "shop", "HOST": "db", "OPTIONS": options}, f"mysql://db/shop?{query}".rstrip("?"))
        for options, query in [
            ({"charset": "utf8mb4", "ssl": {"ca": "/ca"}}, "ssl_ca=%2Fca"),
            ({"ssl": True}, "ssl_check_hostname=false"),
            ({"ssl_mode": "PREFERRED"}, ""),
            ({"ssl_mode": "VERIFY_CA", "ssl": {"ca": "/ca"}}, "ssl_ca=%2Fca&ssl_check_hostname=false"),
            ({"ssl_mode": "VERIFY_IDENTITY", "ssl": {"ca": "/ca"}}, "ssl_ca=%2Fca&ssl_check_hostname=true"),
        ]
    ),
]


@pytest.mark.parametrize(("vendor", "entry", "url"), NAMED)
def test_a_database_of_djangos_is_a_url(vendor, entry, url):
    assert make_url(url_of(vendor, entry)).render_as_string(hide_password=False) == url
    address_of(url_of(vendor, entry))


def test_a_file_with_signs_that_mean_something_in_a_url_is_that_file():
    assert address_of(url_of("sqlite", {"NAME": "/srv/100%?/db"})).file == "/srv/100%?/db.ids"


PORT = "the PORT '{PORT}', and needs one number for each host of '{HOST}'"
OPTION = "the option {}.* set ALLOCATOR to a URL"


@pytest.mark.parametrize(
    ("vendor", "entry", "words"),
    [
        ("mysql", {"OPTIONS": {"ssl_mode": "VERIFY_CA"}}, OPTION.format("ssl_mode")),
        ("postgresql", {"OPTIONS": {"assume_role": "shop"}}, OPTION.format("assume_role")),
        ("postgresql", {"HOST": "a,b", "PORT": "1,2,3"}, PORT),
        ("postgresql", {"HOST": "a", "PORT": "1,2"}, PORT),
        ("mysql", {"HOST": "a,b", "PORT": "x"}, PORT),
        ("oracle", {}, "which is oracle; set ALLOCATOR"),
    ],
)
def test_what_fits_no_url_is_refused(vendor, entry, words):
    with pytest.raises(InvalidDatabase, match=words.format_map(entry)):
        url_of(vendor, SERVER | entry)
