"""The OpenAPI file and the code say the same."""

from __future__ import annotations

import re
from typing import Any, get_args

import rest_contract
from tornado import web

from jupyter_ownedkernels import errors, models
from jupyter_ownedkernels.handlers import base as handlers_base
from jupyter_ownedkernels.handlers import routes as handlers
from jupyter_ownedkernels.models import State


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = rest_contract.spec()["components"]["schemas"][name]
    return found


def test_every_route_and_verb_is_in_it_and_nothing_else() -> None:
    missing = web.RequestHandler._unimplemented_method
    routes: dict[str, set[str]] = {}
    for pattern, handler in handlers.default_handlers:
        template = pattern.replace("([^/]+)", "{kernel_id}")
        routes[template] = {
            verb.lower()
            for verb in handler.SUPPORTED_METHODS
            if verb != "OPTIONS" and getattr(handler, verb.lower()) is not missing
        }
    documented = {
        path: {name for name in item if name != "parameters"}
        for path, item in rest_contract.spec()["paths"].items()
    }
    assert routes == documented


def test_operations_have_names_and_words() -> None:
    operations = [
        operation for item in rest_contract.spec()["paths"].values() for operation in item.values()
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(operation["summary"].endswith(".") for operation in operations)
    assert all("403" in operation["responses"] for operation in operations)


def test_lists_of_words_are_those_of_the_code() -> None:
    assert schema("Kind")["enum"] == list(get_args(models.FindingKind))
    assert schema("CleanResult")["properties"]["outcome"]["enum"] == list(get_args(models.Outcome))
    assert schema("Exit")["properties"]["cause"]["enum"] == list(get_args(models.Cause))
    kernel = schema("Kernel")["properties"]
    assert set(kernel["state"]["enum"]) == {state.value for state in State}
    assert kernel["launch_mode"]["enum"] == list(get_args(models.LaunchMode))
    entry = schema("HistoryEntry")["properties"]
    assert entry["by"]["enum"] == [*get_args(models.EndedBy), None]
    assert entry["cause"]["enum"] == [*get_args(models.Cause), None]


def test_fields_are_those_of_the_records() -> None:
    for name, record in (
        ("Exit", models.Exit),
        ("Finding", models.Finding),
        ("CleanResult", models.CleanResult),
        ("HistoryEntry", models.HistoryEntry),
        ("Survivor", models.Survivor),
    ):
        assert set(schema(name)["properties"]) == set(record.__dataclass_fields__), name


def test_every_field_is_always_there() -> None:
    """A client need not ask whether a field is there, only whether it is null."""
    for name, content in rest_contract.spec()["components"]["schemas"].items():
        optional = set(content.get("properties", {})) - set(content.get("required", []))
        # A request; and an addition of warm spawners only.
        allowed = {"Cleanup": {"ids", "kinds", "dry_run"}, "Spawner": {"preload"}}
        assert optional == allowed.get(name, set()), name


def test_a_kernel_with_its_processes_is_a_kernel() -> None:
    plain, more = schema("Kernel"), schema("KernelWithProcesses")
    assert more["required"] == [*plain["required"], "processes"]
    rest = {name: item for name, item in more["properties"].items() if name != "processes"}
    assert rest == plain["properties"]


def test_error_codes_are_those_of_the_code() -> None:
    answered = {kind.code for kind, _ in handlers_base._STATUS}
    # Of subclasses that are answered with the status of their parent.
    assert issubclass(errors.Superseded, errors.StateConflict)
    codes = answered | set(handlers_base._CODES.values()) | {"error"}
    assert codes == set(schema("Error")["properties"]["code"]["enum"])


def test_bounds_are_those_of_the_code() -> None:
    ids = schema("Cleanup")["properties"]["ids"]
    assert (ids["maxItems"], ids["items"]["maxLength"]) == (handlers.MOST_IDS, handlers.LONGEST_ID)
    (limit,) = rest_contract.spec()["paths"]["/api/ownedkernels/history"]["get"]["parameters"]
    assert limit["schema"]["maximum"] == handlers.MOST_ENTRIES
    too_large = rest_contract.spec()["paths"]["/api/ownedkernels/cleanup"]["post"]["responses"]
    (mebibytes,) = re.findall(r"(\d+) MiB", too_large["413"]["description"])
    assert int(mebibytes) << 20 == handlers_base.MAX_BODY
