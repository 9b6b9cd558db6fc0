"""The figures of several workers."""

from __future__ import annotations

from allocator.service.metrics import Figures, written_files
from allocator.service.settings import FIGURES


def test_a_file_that_a_worker_creates_at_this_moment_is_left_out(tmp_path, monkeypatch):
    """The collector of prometheus_client raises struct.error for an empty file."""
    monkeypatch.setenv(FIGURES, str(tmp_path))
    written, created = tmp_path / "counter_7.db", tmp_path / "histogram_7.db"
    written.write_bytes(b"\x08" + bytes(7))
    created.touch()

    assert list(written_files(tmp_path)) == [str(written)]
    assert not list(Figures().collect())
