"""Whose pages may ask: checks the Host and Origin of a request; knows no application."""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

_ANY = "*"
_LONGEST = 100  # characters of a header that are repeated


class StrangerError(Exception):
    """A request comes from a page, or by a name, that the server does not know.

    Attributes:
        reason: host or origin.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Callers:
    """Tells requests of the server's own page, and of programs, from those that pages of strangers make."""

    def __init__(self, allowed_hosts: Sequence[str], allow_origins: Sequence[str]) -> None:
        """Take the names by which the server is reached, and the origins whose pages may ask; '*' is any."""
        self._hosts = {_name_of(host) for host in allowed_hosts}
        self._origins = set(allow_origins)

    def check(self, method: str, headers: Headers) -> None:
        """Refuse a stranger.

        Raises:
            StrangerError: it is one.
        """
        host = headers.get("host")
        if host is not None and not self._is_known(_name_of(host)):
            name = _name_of(host)[:_LONGEST] or "NAME"
            raise StrangerError("host", f"the server is not known as {name}: start it with --allowed-host {name}")
        if method == "POST" and self._is_across(headers) and not {headers.get("origin"), _ANY} & self._origins:
            told = headers.get("origin", "ORIGIN")[:_LONGEST]
            away = f"start the server with --allow-origin {told}, or let the proxy before it pass on the header Host"
            raise StrangerError("origin", f"pages of other origins may not ask: {away}")

    def _is_known(self, name: str) -> bool:
        """Whether a name cannot be a stranger's that was pointed at this machine (DNS rebinding): addresses cannot."""
        return (
            name == "localhost" or name.endswith(".localhost") or _is_address(name) or bool({name, _ANY} & self._hosts)
        )

    def _is_across(self, headers: Headers) -> bool:
        """Whether a browser posts this for another origin's page: it hides the answer, but the work would be done.

        Browsers say so in Sec-Fetch-Site (W3C, Fetch Metadata Request Headers), but over plain HTTP only to this
        machine; Origin they send with every post. Other clients send neither.
        """
        if site := headers.get("sec-fetch-site"):
            return site in ("cross-site", "same-site")
        origin = headers.get("origin")
        return origin is not None and _place_of(origin) != headers.get("host", "").lower()


def _name_of(host: str) -> str:
    """The name or address of a host that may have a port; empty: it has none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _place_of(origin: str) -> str:
    """Host and port of an origin, as in the header Host; empty: it has none, such as the origin null."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
