"""The Grafana board asks for metrics and labels that the service has, and for all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client.metrics_core import Metric

from allocator.service.metrics import Metrics

GRAFANA = Path(__file__).parents[3] / "examples" / "grafana"
BOARD = json.loads((GRAFANA / "allocator.json").read_text())
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
LABELS = re.compile(r"by \(([^)]*)\)|[{,](\w+)(?:!=|=~|=)")
FROM_PROMETHEUS = {"job", "le"}


def metrics() -> list[Metric]:
    return [metric for metric in Metrics().collect() if metric.name.startswith("allocator_")]


def names_of(metric: Metric) -> set[str]:
    """As Prometheus stores them."""
    endings = {"counter": ("_total",), "info": ("_info",), "histogram": ("_count", "_sum", "_bucket")}.get(
        metric.type, ("",)
    )
    return {metric.name + ending for ending in endings}


def test_it_asks_for_every_figure_and_for_no_other():
    asked = {name for expression in EXPRESSIONS for name in re.findall(r"allocator_\w+", expression)}

    assert asked <= {name for metric in metrics() for name in names_of(metric)}
    assert all(names_of(metric) & asked for metric in metrics())


def test_its_labels_are_those_of_the_metrics():
    counted = Metrics()
    for made in (value for value in vars(counted).values() if hasattr(value, "_labelnames")):
        names = set(made._labelnames) | FROM_PROMETHEUS
        for expression in (one for one in EXPRESSIONS if f"{made._name}" in one):
            asked = {name.strip() for by, one in LABELS.findall(expression) for name in (by or one).split(",")}
            assert asked <= names, expression


def test_an_alert_says_whom_it_wakes_and_what_it_means():
    (group,) = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule
        assert set(rule["annotations"]) == {"summary", "description"}, rule
