"""From plain values to findings: what the doctor makes of what it was told."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import allocator
from allocator.doctor import tag_rules
from allocator.runtime.mounts import is_networked, mount_of, mounts_of
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding, few, in_order, is_healthy, unchecked
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import REFUSE, Tag
from allocator.schemes.worker_number_lease import NumberRow, Space

TAG = Tag("order", 1000)


def names(findings: Iterable[Finding]) -> list[str]:
    return [one.name for one in findings]


# -- findings

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"
PACKAGE = Path(allocator.__file__).parent
MAKE = [
    *PACKAGE.glob("doctor/*.py"),
    *PACKAGE.glob("database/**/*checks.py"),
    PACKAGE / "schemes" / "shared" / "findings.py",
]
NAME = r"(?:[a-z]+(?:-[a-z]+)+|refused|unreachable)"


def test_the_page_names_each_finding_and_no_other():
    made = {name for path in MAKE for name in re.findall(f'"({NAME})"', path.read_text())}
    section = PAGE.read_text().partition("\n## The doctor\n")[2]

    assert made == set(re.findall(f"`({NAME})`", section))


def test_the_worst_comes_first_and_nothing_twice_and_notes_alone_are_healthy():
    note, outage, danger = (Finding(*one, "", "") for one in (("c", NOTE), ("b", OUTAGE), ("a", DANGER)))

    assert names(in_order([note, outage, danger] * 2)) == ["a", "b", "c"]
    assert is_healthy([])
    assert is_healthy([unchecked("the disk", "it is dark", "make light")])
    assert not is_healthy([outage])
    assert not is_healthy([danger])
    assert (few("ab"), few("abcdef")) == ("a, b", "a, b, c and 3 more")


# -- tags

LOW = Tag("low", 0, limit=2**31 - 1)
NARROW = replace(LOW, max_value=2**31 - 8 * LOW.max_step)
WAITING = replace(TAG, failover_gap=REFUSE, move=1)


def test_tags():
    of_a_shard = replace(TAG, residue=Residue(1, 3))
    for tag, residue, expected in (
        (TAG, ALL, []),
        (of_a_shard, Residue(1, 3), []),
        (TAG, Residue(1, 3), ["tag-of-another-lane"]),
        (of_a_shard, Residue(2, 3), ["tag-of-another-lane"]),
        (Tag("a", 79, limit=100, failover_gap=1), ALL, []),
        (Tag("a", 80, limit=100, failover_gap=1), ALL, ["tag-near-limit"]),
        (Tag("a", 100, limit=100, failover_gap=0), ALL, ["tag-near-limit", "failover-gap-zero"]),
        (WAITING, ALL, ["server-replaced"]),
        (replace(WAITING, move=0), ALL, []),
        (replace(WAITING, failover_gap=5), ALL, []),
        (replace(NARROW, max_value=NARROW.max_value - 1), ALL, ["tag-near-limit"]),
        (NARROW, ALL, ["tag-near-limit", "failover-gap-near-limit"]),
        (replace(NARROW, failover_gap=REFUSE), ALL, ["tag-near-limit"]),
        (replace(TAG, failover_gap=TAG.limit), ALL, ["failover-gap-near-limit"]),
    ):
        assert names(tag_rules.of_tags([tag], residue, 0)) == expected, tag


def test_what_is_wrong_of_several_tags_is_one_finding():
    [found] = tag_rules.of_tags([Tag(name, 5, failover_gap=0) for name in "abcd"], ALL, 0)

    assert found.found.startswith("'a', 'b', 'c' and 1 more skip no ids")
    assert found.mend == "allocator tags set TAG --failover-gap auto"


# -- numbers and times


def test_node_and_worker_numbers_that_run_out():
    assert [names(tag_rules.of_nodes(greatest, METEOR)) for greatest in (0, 838_859)] == [[], []]
    assert names(tag_rules.of_nodes(838_861, METEOR)) == ["nodes-run-out"]
    row = NumberRow(0, 10, 20_000, "a", 0, 0, 0, "host", 1)
    for held, expected in ((819, []), (820, ["workers-run-out"])):
        assert names(tag_rules.of_spaces([Space("billing", 10, 20_000, [row] * held)])) == expected
    assert names(tag_rules.of_spaces([])) == []


def test_clocks_that_differ():
    for ahead, severity in [(0, None), (-5, None), (5.1, NOTE), (-10, NOTE), (10.1, OUTAGE), (-3600, OUTAGE)]:
        assert [one.severity for one in tag_rules.of_clocks(ahead)] == ([severity] if severity else []), ahead


# -- files


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/export /srv nfs4 rw 0 0
/dev/vdb /srv/local ext4 rw 0 0
//box/with\\040blank /mnt/with\\040blank cifs rw 0 0
broken line
sshfs#a: /home/a/far fuse.sshfs rw 0 0
/dev/vdc /twice ext4 rw 0 0
host0 /twice 9p rw 0 0
"""


def test_the_file_system_of_a_file():
    mounts = mounts_of(MOUNTS)
    for folders, kinds, far in (
        (("/var", "/srv/local", "/srvother"), ["ext4"] * 3, False),
        (("/srv", "/mnt/with blank", "/home/a/far", "/twice"), ["nfs4", "cifs", "fuse.sshfs", "9p"], True),
    ):
        found = [mount_of(f"{folder}/ids.db", mounts).kind for folder in folders]
        assert (found, {is_networked(kind) for kind in found}) == (kinds, {far})
    assert mount_of("/var/ids.db", mounts_of("")) is None
