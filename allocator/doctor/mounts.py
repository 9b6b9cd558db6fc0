"""Which file system a file is on, told from the text of /proc/mounts."""

from __future__ import annotations

import re
from typing import NamedTuple

NETWORKED = re.compile(
    r"(nfs\d?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|gpfs|ocfs2|gfs2|beegfs|ncpfs|virtiofs|fuse\..*)"
)
"""Where locks may be granted to two machines at once, or a flush may reach no disk."""

LOCAL_FUSE = frozenset({"fuse.lxcfs", "fuse.fuse-overlayfs", "fuse.gvfsd-fuse", "fuse.portal"})
"""Named like the others, and kept on this machine."""


class Mount(NamedTuple):
    device: str
    folder: str
    kind: str


def mounts_of(text: str) -> list[Mount]:
    """The lines of /proc/mounts, in which blanks and the like are written as octal numbers."""
    lines = [line.split() for line in text.splitlines()]
    return [Mount(unescaped(words[0]), unescaped(words[1]), words[2]) for words in lines if len(words) >= 3]


def unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that holds an absolute path without links; of two at one folder the later one hides the other."""
    held = [one for one in mounts if path == one.folder or path.startswith(one.folder.rstrip("/") + "/")]
    return max(enumerate(held), key=lambda pair: (len(pair[1].folder), pair[0]))[1] if held else None


def is_networked(kind: str) -> bool:
    return bool(NETWORKED.fullmatch(kind)) and kind not in LOCAL_FUSE
