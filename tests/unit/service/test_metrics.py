"""The metrics of several workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from allocator.service.metrics import Metrics, written_files
from allocator.service.settings import METRICS_FOLDER


def test_a_file_that_a_worker_creates_at_this_moment_is_left_out(tmp_path, monkeypatch):
    """The collector of prometheus_client raises struct.error for an empty file."""
    monkeypatch.setenv(METRICS_FOLDER, str(tmp_path))
    written, created = tmp_path / "counter_7.db", tmp_path / "histogram_7.db"
    written.write_bytes(b"\x08" + bytes(7))
    created.touch()

    assert list(written_files(tmp_path)) == [str(written)]
    assert not list(Metrics().collect())


WORKER = """
import os, sys
from pathlib import Path

from allocator.service.metrics import Metrics, end_worker
from allocator.service.settings import ServeSettings

folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
for left in sorted(folder.glob("*.db")):  # as if this process had the id of the one that left them
    left.rename(folder / f"{left.stem.rpartition('_')[0]}_{os.getpid()}.db")

if sys.argv[1] == "dies":
    metrics = Metrics()
    metrics.days.labels("tag order").set(3.0)
    metrics.ids.labels("segment", "order").inc(7)
else:
    from allocator.service.server import worker

    worker(ServeSettings((f"sqlite:///{folder}/ids.db",), console=False))
    metrics = Metrics()
    metrics.ready.set(1.0)
    metrics.ids.labels("segment", "order").inc()
    print(metrics.text().decode())
    end_worker()
"""


def run_worker(folder: Path, does: str) -> str:
    command, environment = [sys.executable, "-c", WORKER, does], os.environ | {METRICS_FOLDER: str(folder)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_worker_with_the_process_id_of_a_dead_one_keeps_its_counters_and_not_its_gauges(tmp_path):
    run_worker(tmp_path, "dies")
    text = run_worker(tmp_path, "ends")

    assert "allocator_days_left{" not in text
    assert "allocator_ready 1.0" in text
    assert 'allocator_ids_total{scheme="segment",tag="order"} 8.0' in text
    assert not list(tmp_path.glob("gauge_live*"))
    assert list(tmp_path.glob("counter_*"))
