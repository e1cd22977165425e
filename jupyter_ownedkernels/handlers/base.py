"""What all REST handlers share: rights, errors, and the reading of input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import responses
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jupyter_server.base.handlers import APIHandler
from tornado import web

from ..errors import (
    BadQuery,
    BadRequest,
    OwnedKernelsError,
    ScanUnavailable,
    StateConflict,
    TooLarge,
    UnknownKernel,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..doctor.scanning import Run, Scanner
    from ..ownership import Ownership
    from ..takeover.manager_class import Mode
    from ..telemetry.telemetry import Telemetry
    from ..views.server import ServerViews

AUTH_RESOURCE = "ownedkernels"
SETTINGS_KEY = "jupyter_ownedkernels"
MAX_BODY = 2 << 20
"""Bytes: 10,000 ids are half of it."""

T = TypeVar("T", bound=str)


# The first class that fits counts.
_STATUS: tuple[tuple[type[OwnedKernelsError], int], ...] = (
    (UnknownKernel, 404),
    (StateConflict, 409),
    (BadQuery, 400),
    (TooLarge, 413),
    (BadRequest, 422),
    (ScanUnavailable, 503),
)
_CODES = {
    400: "bad_request",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}


@dataclass(frozen=True)
class Services:
    """What the handlers call. One for each server, in its application's settings."""

    mode: Mode
    ownership: Ownership | None
    views: ServerViews
    scanner: Scanner
    telemetry: Telemetry
    run: Run
    secrets: Callable[[], list[str]]
    """Texts that must not be in any answer."""


class OwnedKernelsHandler(APIHandler):
    """Base of all handlers here.

    Each verb of each class is decorated by itself, with ``web.authenticated`` and then
    ``authorized``: that decorator remembers the action and resource of its first call,
    so a method shared by two classes or verbs would keep the rights of one of them.
    """

    auth_resource = AUTH_RESOURCE
    # A dashboard that polls must not keep the server from being culled.
    _track_activity = False

    @property
    def services(self) -> Services:
        return cast(Services, self.settings[SETTINGS_KEY]["services"])

    def answer(self, content: dict[str, Any]) -> None:
        """Finish with 200 and this JSON."""
        self._finish_with(json.dumps(content, allow_nan=False))

    async def answer_many(self, make: Callable[[], dict[str, Any]]) -> None:
        """The same for what may be long: made and turned into text in a worker thread."""
        self._finish_with(await self.services.run(lambda: _text(make())))

    def _finish_with(self, text: str) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish(text)

    # -- input -----------------------------------------------------------------------

    def one_of(self, name: str, allowed: Collection[T], default: T) -> T:
        """A query parameter with a fixed set of values. Raises BadQuery."""
        value = self._query(name)
        if value is None:
            return default
        if value not in allowed:
            raise BadQuery(f"{name} is one of: {', '.join(allowed)}")
        return cast(T, value)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A query parameter with a whole number in these bounds. Raises BadQuery."""
        value = self._query(name)
        if value is None:
            return default
        digits = value.isascii() and value.isdigit() and len(value) <= 9
        if not digits or not least <= int(value) <= most:
            raise BadQuery(f"{name} is a whole number from {least} to {most}")
        return int(value)

    def _query(self, name: str) -> str | None:
        values = self.get_query_arguments(name)
        if len(values) > 1:
            raise BadQuery(f"{name} is given more than once")
        return values[0] if values else None

    def body(self, known: Collection[str]) -> dict[str, Any]:
        """The body as a JSON object with no other fields than these. Raises BadRequest."""
        raw = self.request.body
        if len(raw) > MAX_BODY:
            raise TooLarge(f"the body is longer than {MAX_BODY} bytes")
        try:
            content = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            raise BadRequest("the body is not JSON") from None
        if not isinstance(content, dict):
            raise BadRequest("the body is not a JSON object")
        unknown = content.keys() - set(known)
        if unknown:
            raise BadRequest(f"unknown fields; known are: {', '.join(known)}")
        return content

    # -- errors ----------------------------------------------------------------------

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Errors of the domain get their status here, and nowhere else."""
        error = _error_in(kwargs)
        if isinstance(error, OwnedKernelsError):
            status_code = _status_of(error)
        super().send_error(status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """``message`` for people, ``reason`` as Jupyter has it, ``code`` for programs."""
        error = _error_in(kwargs)
        message = responses.get(status_code, "Unknown HTTP error")
        reason, code = None, _CODES.get(status_code, "error")
        if isinstance(error, OwnedKernelsError):
            message, code = str(error), error.code
        elif isinstance(error, web.HTTPError):
            message, reason = error.log_message or message, error.reason
        elif error is not None:
            message = "Unhandled error"
        if status_code == 405:
            self.set_header("Allow", ", ".join(self._verbs()))
        self.set_header("Cache-Control", "no-store")
        self.log.warning("%s %s: %s", self.request.method, self.request.path, message)
        self.finish(json.dumps({"message": message, "reason": reason, "code": code}))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """An error of the domain is an answer, no accident: without its traceback."""
        if not isinstance(value, OwnedKernelsError):
            super().log_exception(typ, value, tb)

    @classmethod
    def _verbs(cls) -> list[str]:
        missing = web.RequestHandler._unimplemented_method
        return [one for one in cls.SUPPORTED_METHODS if getattr(cls, one.lower()) is not missing]


def _text(content: dict[str, Any]) -> str:
    """JSON, of lists entry by entry: the encoder lets no other thread run before it is done."""
    fields = []
    for name, value in content.items():
        if isinstance(value, list):
            text = "[" + ", ".join(json.dumps(one, allow_nan=False) for one in value) + "]"
        else:
            text = json.dumps(value, allow_nan=False)
        fields.append(f"{json.dumps(name)}: {text}")
    return "{" + ", ".join(fields) + "}"


def _error_in(kwargs: dict[str, Any]) -> BaseException | None:
    info = kwargs.get("exc_info")
    return info[1] if info else None


def _status_of(error: OwnedKernelsError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
