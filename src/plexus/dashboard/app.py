"""The web application: a page, the files it is made of, and five questions it asks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plexus.dashboard.library import Library
from plexus.dashboard.run import ShownRun
from plexus.errors import PlexusError

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Answers only to reading, and only to a host that cannot be a stranger's name for this machine.

    A page elsewhere can point a name of its own at 127.0.0.1 and then read what we answer (DNS
    rebinding). An address in the Host header rules that out, and so does a name that was allowed.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str] = ()) -> None:
        self._app = app
        self._allowed = {"localhost", *(name.lower() for name in allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            refusal = PlainTextResponse("this page only shows things", 405, {"Allow": "GET, HEAD"})
        elif not self.is_allowed(Headers(scope=scope).get("host", "")):
            refusal = PlainTextResponse("unknown host; see --allow-host", 421)
        else:
            await self._app(scope, receive, _with_headers(send))
            return
        await refusal(scope, receive, _with_headers(send))

    def is_allowed(self, host: str) -> bool:
        """Whether a Host header names this server: `127.0.0.1:8400`, `[::1]:8400`, `localhost`."""
        start, _, end = host.rpartition(":")
        has_port = end.isdigit() and (host.count(":") == 1 or start.endswith("]"))
        name = start if has_port else host
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        try:
            ip_address(name)
        except ValueError:
            return name.lower() in self._allowed
        return True


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-cache")
        await send(message)

    return send_with_headers


def create_app(library: Library, allowed_hosts: tuple[str, ...] = ()) -> Starlette:
    questions = Questions(library)
    return Starlette(
        routes=[
            Route("/api/runs", questions.runs),
            Route("/api/compare", questions.compare),
            Route("/api/run", questions.run),
            Route("/api/window", questions.window),
            Route("/api/node", questions.node),
            Mount("/", StaticFiles(packages=[("plexus.dashboard", "static")], html=True)),
        ],
        middleware=[
            Middleware(Guard, allowed=allowed_hosts),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4),
        ],
        exception_handlers={PlexusError: lambda _, error: _json({"error": str(error)}, status=500)},
    )


class Questions:
    """What the page asks. All of it is plain functions: each request has a thread."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def runs(self, request: Request) -> Response:
        return _json(self._library.listing())

    def compare(self, request: Request) -> Response:
        return _json(self._library.compared(request.query_params.getlist("run")))

    def run(self, request: Request) -> Response:
        source = self._source(request)
        if source is None:
            return _missing("no such run")
        tag = f'"{hashlib.blake2b(source.stamp().encode(), digest_size=8).hexdigest()}"'
        if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return _json(source.overview(), {"ETag": tag})

    def window(self, request: Request) -> Response:
        source = self._source(request)
        if source is None:
            return _missing("no such run")
        from_s, to_s = (_number(request, name) for name in ("from", "to"))
        if from_s is None or to_s is None or to_s < from_s:
            return _json({"error": "from and to must be numbers, in order"}, status=400)
        return _json(source.window(from_s, to_s))

    def node(self, request: Request) -> Response:
        source, number = self._source(request), _number(request, "node")
        if source is None:
            return _missing("no such run")
        found = source.node(int(number)) if number is not None else None
        return _missing("no such node") if found is None else _json(found)

    def _source(self, request: Request) -> ShownRun | None:
        return self._library.get(request.query_params.get("id", ""))


def _number(request: Request, name: str) -> float | None:
    try:
        value = float(request.query_params.get(name, ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _json(value: Any, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _missing(text: str) -> Response:
    return _json({"error": text}, status=404)
