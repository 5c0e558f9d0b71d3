"""Who may ask, and what a browser may do with the answer."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        name = host.rpartition(":")[0] if _has_port(host) else host
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        try:
            ip_address(name)
        except ValueError:
            return name.lower() in self._allowed
        return True


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and (host.count(":") == 1 or "]:" in host)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-cache")
        await send(message)

    return send_with_headers
