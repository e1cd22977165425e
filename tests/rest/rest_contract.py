"""The OpenAPI file as a judge: every answer that a test gets is held against it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

import jupyter_ownedkernels

SPEC_PATH = Path(jupyter_ownedkernels.__file__).parent / "rest-api.yaml"
NAMESPACE = "/api/ownedkernels"


@cache
def spec() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(SPEC_PATH.read_text(encoding="utf-8"))
    return content


def as_json_schema(schema: Any) -> Any:
    """OpenAPI 3.0's ``nullable`` in the words of JSON Schema."""
    if isinstance(schema, list):
        return [as_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {name: as_json_schema(item) for name, item in schema.items() if name != "nullable"}
    return {"anyOf": [rest, {"type": "null"}]} if schema.get("nullable") is True else rest


@cache
def _validator(pointer: str) -> jsonschema.Draft202012Validator:
    root = {"$ref": f"#{pointer}", **as_json_schema(spec())}
    return jsonschema.Draft202012Validator(root)


def template_of(path: str) -> str | None:
    """The path of the specification that a request's path belongs to."""
    for template in spec()["paths"]:
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return str(template)
    return None


def check(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    """AssertionError when the answer is not what the specification promises.

    ``path`` is without base URL and query. Other paths than ours are not judged.
    """
    template = template_of(path)
    if template is None:
        return
    what = f"{method} {path}: {status}"
    if method == "OPTIONS" or (method == "HEAD" and not body):
        return
    assert content_type.startswith("application/json"), f"{what} is {content_type}"
    content = json.loads(body)
    operation = spec()["paths"][template].get(method.lower())
    if operation is None:
        assert status in (403, 405), what
        pointer = "/components/schemas/Error"
    else:
        assert str(status) in operation["responses"], f"{what} is not documented"
        escaped = template.replace("~", "~0").replace("/", "~1")
        pointer = f"/paths/{escaped}/{method.lower()}/responses/{status}"
        response = operation["responses"][str(status)]
        if "$ref" in response:
            pointer = response["$ref"].lstrip("#")
        pointer += "/content/application~1json/schema"
    errors = sorted(_validator(pointer).iter_errors(content), key=lambda error: list(error.path))
    assert not errors, f"{what}: {'; '.join(_told(error) for error in errors[:5])}"


def _told(error: jsonschema.ValidationError) -> str:
    # The best match inside of an anyOf says more than "is not valid under any".
    best = jsonschema.exceptions.best_match([error]) or error
    return f"{'/'.join(map(str, error.absolute_path))}: {best.message[:300]}"
