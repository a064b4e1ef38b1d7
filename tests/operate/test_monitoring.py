"""The dashboard and the rules in examples/monitoring/ name only what /metrics shows, under either prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.operate.conftest import Serve

from sources import ROOT

FOLDER = ROOT / "examples/monitoring"
WORDS = {
    *("sum", "avg", "rate", "deriv", "histogram_quantile", "label_values", "by", "and", "le", "model_name"),
    *("handler", "status", "finished_reason", "up"),
}
NAME = re.compile(r"[a-zA-Z_][\w:]*")


def names(expression: str, prefix: str) -> set[str]:
    """The metrics of an expression: what is left once strings, selectors and durations are out."""
    plain = expression.replace("${prefix}", prefix).replace("anychip:", prefix)
    plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", "", plain)
    return {name for name in NAME.findall(plain) if name not in WORDS}


def dashboard() -> dict[str, Any]:
    return json.loads((FOLDER / "dashboard.json").read_text())


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]:
        yield from group["rules"]


@pytest.mark.parametrize("prefix", ["anychip:", "vllm:"])
def test_each_name_is_one_of_the_servers(serve: Serve, prefix: str) -> None:
    with serve(metrics_prefix=prefix) as server:
        server.complete("w5")
        page = server.http.get("/metrics").text
    families = list(text_string_to_metric_families(page))
    shown = {sample.name for family in families for sample in family.samples}
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in dashboard()["templating"]["list"] if isinstance(one["query"], dict)]
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for expression in panels + variables:
        assert names(expression, prefix) <= shown, expression
        assert names(expression, prefix), expression
    for rule in rules():
        assert names(rule["expr"], prefix) <= shown | recorded, rule
    used = set().union(*(names(expression, prefix) for expression in panels))
    unused = {f"{family.name}" for family in families if not any(name.startswith(family.name) for name in used)}
    older = {f"{prefix}time_per_output_token_seconds"}
    rest = {"request_params_n", "request_max_num_generation_tokens", "compiled_programs", "prepared_steps"}
    assert {name for name in unused if name.startswith(prefix)} == older | {prefix + name for name in rest}


def test_the_prometheus_example_loads_the_rules() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [(FOLDER / name).is_file() for name in config["rule_files"]] == [True]
    (job,) = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert all(rule["annotations"]["summary"].endswith(".") for rule in rules() if "alert" in rule)


def test_a_wrong_name_would_be_found() -> None:
    assert names('rate(${prefix}no_such_total{model_name=~"$model"}[5m])', "vllm:") == {"vllm:no_such_total"}


def test_panels_do_not_overlap() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard()["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(places)
