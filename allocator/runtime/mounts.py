"""Find the file system of a file in /proc/mounts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/mounts")

NETWORKED = re.compile(
    r"(nfs\d?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|gpfs|ocfs2|gfs2|beegfs|ncpfs|virtiofs|fuse\..*)"
)
"""File systems on which two machines may get the same lock, or a flush may not reach the disk."""

LOCAL_FUSE = frozenset({"fuse.lxcfs", "fuse.fuse-overlayfs", "fuse.gvfsd-fuse", "fuse.portal"})
"""`NETWORKED` matches every FUSE file system; these have no network, so no other machine opens the file."""


class Mount(NamedTuple):
    folder: str
    kind: str


def mounts_of(text: str) -> list[Mount]:
    """Parse /proc/mounts, which writes blanks as octal escapes."""
    lines = [line.split() for line in text.splitlines()]
    return [Mount(unescaped(words[1]), words[2]) for words in lines if len(words) >= 3]


def unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount of an absolute path without links. Of two mounts at one folder, the later hides the earlier."""
    candidates = [one for one in mounts if path == one.folder or path.startswith(one.folder.rstrip("/") + "/")]
    return max(enumerate(candidates), key=lambda pair: (len(pair[1].folder), pair[0]))[1] if candidates else None


def is_networked(kind: str) -> bool:
    return bool(NETWORKED.fullmatch(kind)) and kind not in LOCAL_FUSE
