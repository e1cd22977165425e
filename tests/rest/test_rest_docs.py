"""What is written for dashboards is executed, and checked against what a server really has."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rest_server import RestServer
from support.workspace import Workspace

from jupyter_ownedkernels import models

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "rest.md"
SERVERS = re.findall(
    r"^\| .*?(?:`--ServerApp.base_url=(\S+)` )?\| `(https?://[^/`]+)([^`]*)` \| `([^`]+)` \|$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def documented() -> Iterator[RestServer]:
    """A server where there is something of everything to be shown."""
    workspace = Workspace()
    workspace.python("python3")
    workspace.mini("mini")
    stale = workspace.runtime / "kernel-stale.json"
    stale.write_text("")
    os.utime(stale, (1_000_000_000, 1_000_000_000))
    ((base_url, _, _, _),) = (one for one in SERVERS if one[0])
    with RestServer(workspace, base_url=base_url) as server:
        server.start_kernel("mini", "Analysis.ipynb")
        server.end_kernel(server.start_kernel("mini"))
        server.get("strays?refresh=1")
        yield server
    assert not workspace.close()


def url_of(server: RestServer) -> str:
    """As the page has it for a server with a base URL."""
    ((_, _, path, _),) = (one for one in SERVERS if one[0])
    return f"http://127.0.0.1:{server.port}{path}"


def run(server: RestServer, command: list[str]) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "URL": url_of(server), "TOKEN": server.token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_says_where_the_api_is(documented: RestServer) -> None:
    assert len(SERVERS) == 3
    for _, address, path, health in SERVERS:
        assert health == f"{address}{path}/api/ownedkernels/health"
    assert f"{url_of(documented)}/" == documented.url
    # Of the one with a base URL it is tried: there it is, and not at the root.
    (address, health) = next((one[1], one[3]) for one in SERVERS if one[0])
    for path, status in ((health.removeprefix(address), 200), ("/api/ownedkernels/health", 404)):
        link = http.client.HTTPConnection("127.0.0.1", documented.port, timeout=60)
        link.request("GET", path, headers={"Authorization": f"token {documented.token}"})
        assert link.getresponse().status == status
        link.close()


def test_the_page_has_examples() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python", "text"}


@pytest.mark.parametrize(
    "code", [code for language, code in BLOCKS if language == "python"], ids=lambda code: None
)
def test_python_examples(documented: RestServer, code: str) -> None:
    assert run(documented, [sys.executable, "-W", "error", "-c", code]).strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    "code", [code for language, code in BLOCKS if language == "bash"], ids=lambda code: None
)
def test_curl_examples(documented: RestServer, code: str) -> None:
    told = run(documented, ["bash", "-euo", "pipefail", "-c", code])
    if "/metrics" in code:
        assert "jupyter_ownedkernels_kernels" in told
        return
    decoder = json.JSONDecoder()
    answers = []
    while told := told.lstrip():
        answer, end = decoder.raw_decode(told)
        answers.append(answer)
        told = told[end:]
    assert len(answers) == code.count("curl ")
    assert not any("code" in answer for answer in answers), answers


def test_every_path_in_the_page_is_a_route() -> None:
    spec = yaml.safe_load((DOCS.parent / "jupyter_ownedkernels" / "rest-api.yaml").read_text())
    routes = {path.rpartition("/")[2] for path in spec["paths"]} | {"kernels"}
    used = set(re.findall(r"api/ownedkernels/(\w+)", PAGE.read_text(encoding="utf-8")))
    assert used
    assert used <= routes


# -- metrics ------------------------------------------------------------------------------

_METRIC = re.compile(r"\bjupyter_ownedkernels_\w+")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!=|!~|=)\s*"([^"]*)"')
# Those that Prometheus itself adds, and histograms have.
_GIVEN = {"instance", "le"}


@pytest.fixture(scope="module")
def real(documented: RestServer) -> dict[str, set[str]]:
    """Names as they can be asked for, and the labels of each."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(documented.metrics()):
        if not family.name.startswith("jupyter_ownedkernels_"):
            continue
        names = {sample.name for sample in family.samples}
        # A counter that has not counted yet shows no sample.
        names |= {f"{family.name}_total"} if family.type == "counter" else set()
        for name in names:
            found[name] = {label for sample in family.samples for label in sample.labels}
    return found


DECLARED = {
    "kernels": {"state"},
    "processes": set(),
    "strays": {"kind"},
    "launch_duration_seconds_bucket": {"mode"},
    "launches_total": {"mode", "result"},
    "exits_total": {"cause"},
    "cleaned_total": {"kind", "outcome"},
    "journal_write_errors_total": set(),
    "scan_duration_seconds_bucket": set(),
}


def test_the_names_are_those_of_the_server(real: dict[str, set[str]]) -> None:
    for name, labels in DECLARED.items():
        full = f"jupyter_ownedkernels_{name}"
        assert full in real
        # Without a sample yet, the labels are not told.
        assert real[full] - {"le"} in (labels, set()), name


def expressions(content: Any) -> Iterator[str]:
    """Every PromQL expression in a dashboard or a file of rules."""
    if isinstance(content, list):
        for item in content:
            yield from expressions(item)
    elif isinstance(content, dict):
        for name, item in content.items():
            if name in ("expr", "query") and isinstance(item, str) and "jupyter" in item:
                yield item
            else:
                yield from expressions(item)


FILES = {
    "grafana-dashboard.json": json.loads((DOCS / "grafana-dashboard.json").read_text()),
    "prometheus-alerts.yaml": yaml.safe_load((DOCS / "prometheus-alerts.yaml").read_text()),
}


@pytest.mark.parametrize("name", FILES)
def test_dashboards_ask_for_what_there_is(name: str) -> None:
    values = {
        "state": {state.value for state in models.State},
        "kind": set(models.FindingKind.__args__),  # type: ignore[attr-defined]
        "cause": set(models.Cause.__args__),  # type: ignore[attr-defined]
        "result": {"ok", "failed"},
    }
    asked = list(expressions(FILES[name]))
    assert len(asked) >= 7
    for expression in asked:
        metrics = [one.removeprefix("jupyter_ownedkernels_") for one in _METRIC.findall(expression)]
        assert metrics, expression
        assert set(metrics) <= set(DECLARED), expression
        known = set().union(*(DECLARED[metric] for metric in metrics)) | _GIVEN
        for label, wanted in _LABEL.findall(expression):
            assert label in known, expression
            if label in values:
                assert set(wanted.split("|")) <= values[label], expression
        for labels in re.findall(r"by \(([^)]*)\)", expression):
            assert {label.strip() for label in labels.split(",")} <= known, expression
        assert expression.count("(") == expression.count(")"), expression
        assert expression.count("{") == expression.count("}"), expression


def test_the_dashboard_shows_every_metric() -> None:
    asked = " ".join(expressions(FILES["grafana-dashboard.json"]))
    assert set(DECLARED) == {
        one.removeprefix("jupyter_ownedkernels_") for one in _METRIC.findall(asked)
    }


def test_legends_are_labels_that_the_expression_keeps() -> None:
    for panel in FILES["grafana-dashboard.json"]["panels"]:
        for target in panel["targets"]:
            kept = " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in kept.replace(",", " ").split(), panel["title"]


def test_rules_have_what_prometheus_wants() -> None:
    (group,) = FILES["prometheus-alerts.yaml"]["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_page_names_every_metric() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in DECLARED:
        assert f"| `{name.removesuffix('_bucket')}` |" in page
