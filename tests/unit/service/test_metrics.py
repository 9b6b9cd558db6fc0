"""Who sees which figures."""

from __future__ import annotations

from allocator.service.metrics import Figures, tag_of, written_files
from allocator.service.settings import FIGURES


def test_which_tag_a_series_is_about():
    for labels, tag in [
        ({"scheme": "segment", "tag": "order"}, "order"),
        ({"scheme": "meteor", "tag": ""}, ""),
        ({"what": "tag order"}, "order"),
        ({"what": "key public.orders.id"}, "public.orders.id"),
        ({"what": "meteor node"}, ""),
        ({"what": "tag", "outcome": "ok"}, ""),
        ({"space": "billing", "state": "free"}, "billing"),
        ({}, ""),
    ]:
        assert tag_of(labels) == tag, labels


def test_the_days_of_a_tag_are_for_who_sees_it():
    figures = Figures()
    for what in ("tag mine", "tag yours", "meteor node"):
        figures.days.labels(what).set(5)
    found = figures.text(lambda name: name == "mine").decode()

    assert 'allocator_days_left{what="tag mine"} 5.0' in found
    assert 'what="meteor node"' in found
    assert "yours" not in found


def test_a_file_that_a_worker_creates_at_this_moment_is_left_out(tmp_path, monkeypatch):
    """The collector of prometheus_client raises struct.error for an empty file."""
    monkeypatch.setenv(FIGURES, str(tmp_path))
    written, created = tmp_path / "counter_7.db", tmp_path / "histogram_7.db"
    written.write_bytes(b"\x08" + bytes(7))
    created.touch()

    assert list(written_files(tmp_path)) == [str(written)]
    assert not list(Figures().collect())
