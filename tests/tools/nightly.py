"""What no change waits for, in parts of minutes each, which `noxfile.py` runs: each is what Python is called with."""

from support.servers import fetched
from support.servers.available import KINDS

PYTEST = ("-m", "pytest", "--no-skips", "--capture=no", "--verbose")
QUICKLY = ("-m", "pytest", "--retry", "--numprocesses", "4", "--dist", "loadfile")
FULL = (*QUICKLY, "--no-skips")
"""Without --quick: every database with every face, rare settings, the browser, the wheel."""
LIKE_POSTGRES = "(postgres or test_managed_databases and not TiDB and not OceanBase)"
UNSEEN = {"14": " and not nothing_is_scanned"}
"""Of this version no session can say when the rows that it read are counted."""
SOAKS = {
    "processes": ("prefork", "threads", "clock"),
    "rows": ("feed",),
    "service": ("service", "shards", "many_connections"),
}
OTHERS = ("unit", "simulation", "processes", "migrations", "acceptance", "mutants", "chaos")
PARTS: dict[str, tuple[str, ...]] = {
    "contract": (*FULL, "tests/contract"),
    "others": (*FULL, *(f"tests/{folder}" for folder in OTHERS)),
    "simulate": ("-m", "simulation", "--seeds", "20000"),
    "mutants": ("-m", "mutants"),
    **{f"chaos-{kind}": (*PYTEST, "tests/chaos", "--seconds", "600", "-k", kind) for kind in ("sqlite", *KINDS)},
    "failover": (*PYTEST, "tests/failover"),
    "cluster": (*PYTEST, "tests/cluster"),
    **{
        f"soak-{name}": (*PYTEST, *(f"tests/endurance/test_{each}.py" for each in files))
        for name, files in SOAKS.items()
    },
}
OLDER = {
    f"postgres-{version}": (
        *QUICKLY,
        "tests/contract",
        "tests/migrations",
        "-k",
        LIKE_POSTGRES + UNSEEN.get(version, ""),
    )
    for version in fetched.POSTGRES
}
"""The SQL on older PostgreSQL."""
LAST_2_0, NEWEST = "sqlalchemy==2.0.58", "sqlalchemy>=2.1,<2.2"
MATRIX = {
    "3.11-oldest": "sqlalchemy==2.0.43 django==4.2.* aiosqlite==0.20.0",  # aiosqlite 0.22 leaves a thread
    "3.11-2.0": LAST_2_0,
    **dict.fromkeys(("3.11", "3.12", "3.13", "3.14"), NEWEST),
}
"""The quick tests on each Python, SQLAlchemy and Django."""
