"""From plain values to findings: what the doctor makes of what it was told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from allocator.database.mysql import doctor_rules as mysql_rules
from allocator.database.mysql.doctor_queries import is_exact, number_of
from allocator.database.postgresql import doctor_rules as postgresql_rules
from allocator.database.sqlite import doctor_rules as sqlite_rules
from allocator.database.sqlite.doctor_rules import loses_commits
from allocator.doctor import tag_rules
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Rule, few, in_order, is_healthy, judge, unchecked
from allocator.runtime.mounts import is_networked, mount_of, mounts_of
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import METEOR, MeteorSettings
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.snowflake import EPOCH, SNOWFLAKE, SnowflakeSettings, SnowflakeWorker
from allocator.schemes.tag import REFUSE, Tag

NOW = 1_790_000_000.0
TAG = Tag("order", 1000)


def names(findings: Iterable[Finding]) -> list[str]:
    return [one.name for one in findings]


# -- findings


def test_the_worst_comes_first_and_nothing_twice():
    found = [Finding("c", NOTE, "", ""), Finding("b", OUTAGE, "", ""), Finding("a", DANGER, "", "")]

    assert names(in_order([*found, *found])) == ["a", "b", "c"]


def test_notes_alone_are_healthy():
    assert is_healthy([])
    assert is_healthy([unchecked("the disk", "it is dark", "make light")])
    assert not is_healthy([Finding("b", OUTAGE, "", "")])
    assert not is_healthy([Finding("a", DANGER, "", "")])


def test_a_rule_fills_in_what_it_found():
    rule = Rule(lambda facts: facts.get("colour") == "red", "it is {colour}", "paint {what}")
    rules = {NOTE: {"colour": rule}}

    assert judge(rules, {"colour": "red", "what": "it"}) == [Finding("colour", NOTE, "it is red", "paint it")]
    assert judge(rules, {"colour": "green"}) == []


def test_of_many_names_a_few_are_said():
    assert few("ab") == "a, b"
    assert few("abcdef") == "a, b, c and 3 more"


ALL_RULES = {
    "postgresql": postgresql_rules.RULES,
    "mysql": mysql_rules.RULES,
    "sqlite": sqlite_rules.RULES,
}


def test_what_could_not_be_asked_leads_to_no_finding():
    for name, rules in ALL_RULES.items():
        assert judge(rules, {}) == [], name


def test_rules_that_take_another_server_to_show():
    for database, name, facts, mended in [
        ("mysql", "numbering-forgotten", {"version": "5.7.44", "version_number": (5, 7)}, {"version_number": (8, 0)}),
        (
            "mysql",
            "galera-not-primary",
            {"wsrep_on": "ON", "wsrep_cluster_status": "non-Primary", "wsrep_cluster_size": "3"},
            {"wsrep_cluster_status": "Primary"},
        ),
        (
            "mysql",
            "several-writers",
            {"auto_increment_increment": "7", "auto_increment_offset": "2"},
            {"group_replication_group_name": "g"},
        ),
        ("sqlite", "file-locked", {"write_refused": "database is locked", "path": "/a"}, {"unwritable": "/a"}),
    ]:
        assert name in names(judge(ALL_RULES[database], facts)), (database, name)
        assert name not in names(judge(ALL_RULES[database], {**facts, **mended})), (database, name)


# -- tags


def test_a_sound_tag_says_nothing():
    assert names(tag_rules.of_tags([TAG], ALL)) == []
    assert names(tag_rules.of_gaps([TAG], set(), has_standby=True)) == []


def test_a_row_that_contradicts_itself():
    for changes, severity in [
        ({"max_value": 200, "limit": 100}, OUTAGE),
        ({"step": 20, "max_step": 10}, OUTAGE),
        ({"step": 0}, OUTAGE),
        ({"max_value": -1}, OUTAGE),
        ({"name": "a b"}, OUTAGE),
        ({"max_value": 1.5}, DANGER),
        ({"limit": MAX_ID + 1}, DANGER),
    ]:
        [found] = tag_rules.of_tags([TAG, replace(TAG, **changes)], ALL)

        assert (found.name, found.severity) == ("tag-changed-by-hand", severity), changes


def test_a_row_of_another_residue():
    [found] = tag_rules.of_tags([replace(TAG, residue=Residue(2, 3)), TAG], Residue(1, 3))

    assert (found.name, found.severity) == ("tag-of-another-lane", DANGER)
    assert "'order' has offset 2 and step 3, 'order' has offset 1 and step 1" in found.found
    assert names(tag_rules.of_tags([replace(TAG, residue=Residue(1, 3))], Residue(1, 3))) == []


def test_a_tag_near_its_limit():
    expected = {79: False, 80: True, 100: True}

    assert {
        used: "tag-near-limit" in names(tag_rules.of_tags([Tag("a", used, limit=100)], ALL)) for used in expected
    } == expected


def test_a_gap_of_nothing_is_a_danger_beside_a_standby():
    bare = replace(TAG, failover_gap=0)

    assert [one.severity for one in tag_rules.of_gaps([bare], set(), has_standby=True)] == [DANGER]
    assert [one.severity for one in tag_rules.of_gaps([bare], set(), has_standby=False)] == [NOTE]


def test_a_tag_that_refuses_is_said_where_it_was_written_elsewhere():
    waiting = replace(TAG, failover_gap=REFUSE, server_run="old")

    assert names(tag_rules.of_gaps([waiting], {"old"}, has_standby=False)) == ["server-replaced"]
    assert names(tag_rules.of_gaps([waiting], {"other"}, has_standby=False)) == []
    assert names(tag_rules.of_gaps([replace(waiting, failover_gap=5)], {"old"}, has_standby=False)) == []


def test_a_tag_that_a_failover_leaves_without_ids():
    narrow = replace(TAG, max_value=2**31 - 8 * TAG.max_step, limit=2**31 - 1)

    assert names(tag_rules.of_gaps([narrow], set(), has_standby=False)) == ["failover-gap-near-limit"]
    assert names(tag_rules.of_gaps([replace(narrow, max_value=narrow.max_value - 1)], set(), has_standby=False)) == []
    assert names(tag_rules.of_gaps([replace(TAG, failover_gap=TAG.limit)], set(), has_standby=False))
    assert names(tag_rules.of_gaps([replace(narrow, failover_gap=REFUSE)], set(), has_standby=False)) == []


# -- numbers and times


def test_node_numbers_that_run_out():
    expected = {0: False, 838_859: False, 838_861: True}

    assert {
        greatest: names(tag_rules.of_nodes(greatest, METEOR)) == ["nodes-run-out"] for greatest in expected
    } == expected


def worker(number: int = 1, epoch: int = EPOCH, layout: Layout = SNOWFLAKE, until: float = NOW + 60) -> SnowflakeWorker:
    return SnowflakeWorker(number, str(layout), epoch, "holder", int(until * 1000), "host", 1)


def test_workers_that_run_out_are_those_that_are_leased():
    leased = [worker(number) for number in range(819)]

    assert names(tag_rules.of_workers(leased, NOW)) == []
    assert names(tag_rules.of_workers([*leased, worker(819)], NOW)) == ["workers-run-out"]
    assert names(tag_rules.of_workers([*leased, worker(819, until=NOW - 1)], NOW)) == []


def test_workers_of_several_formats():
    other = Layout(sign=1, timestamp=40, datacenter=5, worker=6, sequence=12)

    assert names(tag_rules.of_workers([worker(1), worker(2, layout=other)], NOW)) == ["worker-formats-differ"]
    assert names(tag_rules.of_workers([worker(1), worker(2, epoch=5)], NOW)) == ["worker-formats-differ"]


def test_formats_that_end_within_two_years():
    two_years = 730 * 86_400
    ending = SnowflakeSettings(epoch=int(1000 * (NOW + two_years)) - 2**41)
    short = MeteorSettings(epoch=int(NOW), layout=Layout(sign=1, second=25, node=24, sequence=11, random=3))

    assert names(tag_rules.of_formats(MeteorSettings(), SnowflakeSettings(), NOW)) == []
    assert names(tag_rules.of_formats(short, ending, NOW)) == ["meteor-runs-out", "snowflake-runs-out"]
    assert names(tag_rules.of_formats(MeteorSettings(), ending, NOW - 86_400)) == []


def test_clocks_that_differ():
    for ahead, severity in [(0, None), (-5, None), (5.1, NOTE), (-59, NOTE), (61, OUTAGE), (-3600, OUTAGE)]:
        assert [one.severity for one in tag_rules.of_clocks(ahead, 60.0)] == ([severity] if severity else []), ahead


# -- files


MOUNTS = """\
proc /proc proc rw 0 0
/dev/vda / ext4 rw,relatime 0 0
server:/export /srv nfs4 rw 0 0
/dev/vdb /srv/local ext4 rw 0 0
//box/with\\040blank /mnt/with\\040blank cifs rw 0 0
broken line
sshfs#a: /home/a/far fuse.sshfs rw 0 0
lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0
/dev/vdc /twice ext4 rw 0 0
host0 /twice 9p rw 0 0
"""


def test_the_file_system_of_a_file():
    for path, kind, far in [
        ("/var/ids.db", "ext4", False),
        ("/srv/ids.db", "nfs4", True),
        ("/srv/local/ids.db", "ext4", False),
        ("/srvother/ids.db", "ext4", False),
        ("/mnt/with blank/ids.db", "cifs", True),
        ("/home/a/far/ids.db", "fuse.sshfs", True),
        ("/var/lib/lxcfs/a", "fuse.lxcfs", False),
        ("/twice/ids.db", "9p", True),
    ]:
        found = mount_of(path, mounts_of(MOUNTS))

        assert found is not None, path
        assert (found.kind, is_networked(found.kind)) == (kind, far), path


def test_without_mounts_nothing_is_known():
    assert mount_of("/ids.db", mounts_of("")) is None


def test_versions_of_sqlite_that_lose_commits():
    expected = {
        (3, 6, 23): False,
        (3, 7, 0): True,
        (3, 40, 1): True,
        (3, 44, 5): True,
        (3, 44, 6): False,
        (3, 45, 0): True,
        (3, 50, 7): False,
        (3, 51, 2): True,
        (3, 51, 3): False,
        (3, 53, 0): False,
    }

    assert {version: loses_commits(version) for version in expected} == expected


# -- MySQL


def test_which_versions_remember_their_numbering():
    expected = {
        "9.7.4-2": (9, 7, 4),
        "8.0.36": (8, 0, 36),
        "5.6.24-log": (5, 6, 24),
        "11.8.9-MariaDB-4": (8, 0, 0),
        "10.2.3-MariaDB": (5, 7, 0),
        "10.2.4-MariaDB": (8, 0, 0),
        "5.7.25-OceanBase seekdb-v1.4.0.0": (8, 0, 0),
    }

    assert {told: number_of(told) for told in expected} == expected


def test_collations_that_keep_tags_apart():
    expected = {
        "ascii_bin": True,
        "utf8mb4_bin": True,
        "utf8mb4_0900_bin": True,
        "binary": True,
        "utf8mb4_0900_ai_ci": False,
        None: True,
    }

    assert {collation: is_exact(collation) for collation in expected} == expected
