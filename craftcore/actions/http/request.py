"""The request of `http.request`: its arguments are checked and converted before anything is sent.

A payload chooses where to ask and what to say. It cannot choose what goes with a target's secrets: with a target, the
address stays within the target's, and no header that identifies or frames a request is the payload's.
"""

from __future__ import annotations

import json as json_module
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from craftcore.actions.redaction import Scrubber
from craftcore.config.http_targets import (
    CREDENTIAL_HEADERS,
    FRAMING_HEADERS,
    HEADER_NAME,
    REPRESENTATION_HEADERS,
    REROUTING_HEADERS,
    REROUTING_PREFIXES,
    HttpTarget,
    SecretHeader,
    comparable_name,
)
from craftcore.errors import ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect
from craftcore.registry.call import KEY_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing, by definition of HTTP (RFC 9110, 9.2.1)."""

METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
URL_MAX_CHARACTERS = 8192
HEADERS_MAX = 64

_HEADER_VALUE = re.compile(r"[ -~\t]{0,4000}")
_SECRET = re.compile(r"[ -~]+")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|[0-9a-f]*:[0-9a-f:.]+")

_OVERRIDES = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
"""With them a GET would be a DELETE to the provider, and still a GET to us."""

_NOT_WITH_TARGET = REPRESENTATION_HEADERS | REROUTING_HEADERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to send. `own` are the headers of the target, resolved: they go to its origin only."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    content: bytes | None
    own: Mapping[str, str]
    scrubber: Scrubber

    @property
    def safe(self) -> bool:
        return self.method in SAFE_METHODS


def method_of(given: object) -> str:
    """Return the method as it is sent. Raises Fail."""
    method = given.upper() if isinstance(given, str) else ""
    if method not in METHODS:
        raise refusal(f"method {given!r:.40} is not one of {', '.join(sorted(METHODS))}")
    return method


def compose(arguments: Mapping[str, Any], target: HttpTarget | None, key: str, secret: Callable[[str], str]) -> Request:
    """Return the request of a call. Raises Fail for what no attempt could send, NoEffect when a secret is not to be
    had."""
    method = method_of(arguments["method"])
    url = add_query(absolute_url(arguments["url"], target), arguments["query"])
    check(url)
    key_header = KEY_HEADER if target is None else target.key_header
    headers = dict(_payload_headers(arguments["headers"] or {}, target, key_header))
    content, content_type = _content(method, arguments["json"], arguments["body"])
    ours = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "craftcore"} | content_type
    if method not in SAFE_METHODS:
        headers[key_header] = key
    secrets: list[str] = []
    own = dict(_own_headers(target, secret, secrets))
    taken = {name.lower() for name in (*headers, *own)}
    headers |= {name: value for name, value in ours.items() if name.lower() not in taken}
    return Request(method=method, url=url, headers=headers, content=content, own=own, scrubber=Scrubber(secrets))


def absolute_url(given: object, target: HttpTarget | None) -> httpx2.URL:
    """Return the address, which with a target is within its own. Raises Fail."""
    import httpx2

    if not isinstance(given, str) or len(given) > URL_MAX_CHARACTERS:
        raise refusal(f"url must be a text of at most {URL_MAX_CHARACTERS} characters")
    try:
        url = httpx2.URL(given)
        if target is None:
            return url.copy_with(fragment=None)
        base = httpx2.URL(target.base_url)
        if not url.scheme and not url.netloc:
            start = base.raw_path.rstrip(b"/") + (b"" if given[:1] in ("", "?", "#") else b"/")
            url = base.copy_with(raw_path=(start or b"/") + url.raw_path.lstrip(b"/"))
    except (httpx2.InvalidURL, ValueError) as error:
        raise refusal(f"url cannot be read: {error}") from None
    if origin(url) != origin(base) or url.userinfo or not _is_within(_path(url), _path(base).rstrip("/")):
        raise refusal(f"url must be within the base_url of its target, {base}")
    return url.copy_with(fragment=None)


def _path(url: httpx2.URL) -> str:
    return url.raw_path.decode("ascii").partition("?")[0]


def _is_within(path: str, base: str) -> bool:
    """Return whether the path stays below the prefix, also for servers that decode twice, take a backslash for a slash,
    or drop the part after a semicolon."""
    steps = {step.partition(";")[0] for step in re.split(r"[/\\]", unquote(unquote(path)))}
    return (path == base or path.startswith(f"{base}/")) and not steps & {".", ".."}


def origin(url: httpx2.URL) -> tuple[str, str, int]:
    """Return scheme, host and port."""
    return url.scheme, url.host, url.port or {"http": 80}.get(url.scheme, 443)


def check(url: httpx2.URL, redact: Callable[[str], str] = str) -> None:
    """Raise Fail for an address that is never requested, whatever it resolves to. `redact` redacts a part of it for the
    message."""
    if url.scheme not in ("http", "https"):
        relative = "url must be absolute, like https://api.example.com/v1, where no target is named"
        raise refusal(f"url must be http or https, not {redact(url.scheme)[:40]!r}" if url.scheme else relative)
    if url.userinfo:
        raise refusal("url must have no user and no password: secrets stand in a target")
    host = url.raw_host.decode("ascii")
    if not _HOST.fullmatch(host) or len(host) > 254 or not 0 < (80 if url.port is None else url.port) < 65536:
        raise refusal(f"{redact(host)[:200]!r} is not a valid host name")


def add_query(url: httpx2.URL, query: Mapping[str, Any] | None) -> httpx2.URL:
    """Return the address with `query` behind what it asks already. Raises Fail."""
    pairs = []
    for name, value in (query or {}).items():
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, str | int | float):
                raise refusal(f"query: {name!r:.80} must be a text, a number, true, false, or a list of them")
            pairs.append((name, str(one).lower() if isinstance(one, bool) else one))
    try:
        added = urlencode(pairs, quote_via=quote).encode()
    except ValueError:
        raise refusal("query must be valid Unicode") from None
    return url.copy_with(query=b"&".join(filter(None, (url.query, added)))) if added else url


def refusal(message: str) -> Fail:
    return Fail(ErrorCode.VALIDATION_ERROR, message)


def _payload_headers(given: object, target: HttpTarget | None, key_header: str) -> Iterator[tuple[str, str]]:
    """Yield the payload's headers. Raises Fail for one that is not the payload's to give."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise refusal("headers must be a table of texts")
    if len({comparable_name(name) for name in given}) != len(given) or len(given) > HEADERS_MAX:
        raise refusal(f"headers must be at most {HEADERS_MAX}, each once")
    targets = {comparable_name(name) for name in target.headers} if target else set()
    for name, value in given.items():
        lower = comparable_name(name)
        if lower in CREDENTIAL_HEADERS:
            raise refusal(f"header {name} is given by a target of the configuration: a payload is stored and shown")
        if lower in targets:
            raise refusal(f"header {name} is given by the target")
        if lower in (comparable_name(key_header), comparable_name(KEY_HEADER)):
            raise refusal(f"header {name} carries the key of the call, which is not the payload's to give")
        if lower in FRAMING_HEADERS or lower in _OVERRIDES or not HEADER_NAME.fullmatch(name):
            raise refusal(f"header {name!r:.80} cannot be given")
        if target is not None and (lower in _NOT_WITH_TARGET or lower.startswith(REROUTING_PREFIXES)):
            raise refusal(
                f"header {name} cannot be given with a target: it could lead the secret of the target elsewhere, or "
                "bring it back in a form that is not recognised. If it is needed, write it into the target's headers"
            )
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value) or value != value.strip():
            raise refusal(f"header {name} must be a text of ASCII characters, in one line and without spaces around it")
        yield name, value


def _own_headers(
    target: HttpTarget | None, secret: Callable[[str], str], secrets: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield the target's headers, with what its references stand for."""
    for name, value in (target.headers if target else {}).items():
        if not isinstance(value, SecretHeader):
            yield name, value
            continue
        text = secret(value.secret)
        if not _SECRET.fullmatch(text) or text != text.strip():
            raise NoEffect(
                f"the secret {value.secret} cannot stand in a header: it must be ASCII characters, without a line "
                "break and without spaces around it"
            )
        secrets.append(text)
        if value.prefix.strip().lower() == "basic":
            secrets += _basic_parts(text)
        yield name, f"{value.prefix}{text}"


def _basic_parts(text: str) -> list[str]:
    """Return what the provider reads out of HTTP's Basic scheme, and may echo: user and password, and the password
    alone."""
    try:
        pair = b64decode(text, validate=True).decode()
    except ValueError:
        return []
    return [pair, pair.partition(":")[2]]


def _content(method: str, json: Any, body: str | None) -> tuple[bytes | None, dict[str, str]]:
    """Return the body, and the header that says what it is."""
    if json is None and body is None:
        return None, {}
    if json is not None and body is not None:
        raise refusal("give json or body, one of them")
    if method in SAFE_METHODS:
        raise refusal(f"a {method} has no body; use query")
    try:
        if body is not None:
            return body.encode(), {"Content-Type": "text/plain; charset=utf-8"}
        text = json_module.dumps(json, ensure_ascii=False, allow_nan=False)
        return text.encode(), {"Content-Type": "application/json"}
    except (TypeError, ValueError, RecursionError, AttributeError):
        raise refusal("json must be JSON, body a text, both of valid Unicode") from None
