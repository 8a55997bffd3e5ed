"""A language model behind an OpenAI-compatible endpoint, asked one question at a time.

It needs httpx2, of the extra `llm`, which is imported when a model is made: this module can be without it. The answer
is untrusted text: its length is limited, the key is cut out of it, and no code acts on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from craftcore.actions.http.status_codes import code_of, retry_after
from craftcore.actions.redaction import Scrubber
from craftcore.clock import SystemClock
from craftcore.errors import ConfigInvalid, CraftcoreError, ErrorCode
from craftcore.serialization.arguments import Duration, seconds, to_seconds
from craftcore.serialization.untrusted import message_of, truncate_text

if TYPE_CHECKING:
    import httpx2

BODY_MAX_BYTES = 64 << 10
SERVER_TEXT_CHARACTERS = 200
TIMEOUT_MAX_SECONDS = 3600.0

_KEY = re.compile(r"[!-~]{1,4000}")
_OURS = frozenset({"model", "messages", "stream"})


class ModelFailed(CraftcoreError):
    """The model, or the way to it, gave no answer; `code` says why, `retry_after` what it asked for. A router's attempt
    is tried again in any case: another one may get an answer."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.AGENT_ERROR, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class ChatModel:
    """One model at one address. Neither its text nor any of its errors tells the key."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None,
        timeout: Duration,
        parameters: Mapping[str, object],
        allow_plain_http: bool,
    ) -> None:
        """Raise ConfigInvalid with one line per mistake, also where httpx2 is not installed."""
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise ConfigInvalid("asking a model needs httpx2: pip install 'craftcore[llm]'") from error
        mistakes = [
            *_address_mistakes(base_url, keyed=api_key is not None, allow_plain_http=allow_plain_http),
            *_word_mistakes(model, api_key, parameters),
            *_timeout_mistakes(timeout),
        ]
        if mistakes:
            raise ConfigInvalid("\n".join(mistakes))
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._clock = SystemClock()
        self._api_key = api_key
        self._scrubber = Scrubber([] if api_key is None else [api_key])
        self._timeout = seconds("timeout", timeout, ConfigInvalid, most=TIMEOUT_MAX_SECONDS)
        self._parameters = dict(parameters)
        self._certificates = httpx2.create_ssl_context()  # reading them takes too long to be done for each question

    def __str__(self) -> str:
        return f"{self._model} at {self._base_url}"

    async def ask(self, instructions: str, question: str) -> str:
        """Return what it answers. Raises ModelFailed when it does not in time, or not as a chat completion."""
        import httpx2

        try:
            with anyio.fail_after(self._timeout):
                answer, body = await self._post(self._request(instructions, question))
        except TimeoutError:
            message = f"{self} did not answer within {self._timeout:g} seconds"
            raise ModelFailed(message, ErrorCode.AGENT_TIMEOUT) from None
        except httpx2.HTTPError as error:
            message = f"{self} cannot be talked to: {self._scrubber.text(message_of(error))}"
            raise ModelFailed(message, ErrorCode.TRANSPORT_ERROR) from error
        content = self._content(answer, body)
        return await anyio.to_thread.run_sync(self._scrubber.text, content, limiter=anyio.CapacityLimiter(1))

    def _request(self, instructions: str, question: str) -> bytes:
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
        return json.dumps({**self._parameters, "model": self._model, "messages": messages, "stream": False}).encode()

    async def _post(self, content: bytes) -> tuple[httpx2.Response, bytes]:
        """Return the head of the answer, and the beginning of its body.

        A client for each question: a router is made before there is a loop, and may outlive one. It follows no
        redirect and knows no proxy, so the key goes to the address it was given for and nowhere else.
        """
        import httpx2

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        url = f"{self._base_url}/chat/completions"
        async with httpx2.AsyncClient(
            verify=self._certificates, trust_env=False, follow_redirects=False, timeout=None
        ) as client:
            async with client.stream("POST", url, content=content, headers=headers) as response:
                return response, await _read_beginning(response)

    def _content(self, answer: httpx2.Response, body: bytes) -> str:
        status = answer.status_code
        if status != 200:
            hint = ", a redirect, which is not followed" if 300 <= status < 400 else ""
            message = f"{self} answered with HTTP status {status}{hint}{self._error_message(body)}"
            wait = retry_after(answer.headers.get("retry-after"), answer.headers.get("date"), self._clock.now())
            raise ModelFailed(message, code_of(status), wait)
        if len(body) > BODY_MAX_BYTES:
            raise ModelFailed(f"{self} answered with more than {BODY_MAX_BYTES} bytes")
        match _json(body):
            case {"choices": [{"message": {"content": str(content)}}, *_]}:
                return content
        raise ModelFailed(f"{self} answered with something else than a chat completion; is the address right?")

    def _error_message(self, body: bytes) -> str:
        """Return what the endpoint says is wrong, where it says so the usual way."""
        match _json(body):
            case {"error": {"message": str(text)}} | {"error": str(text)} | {"message": str(text)}:
                return f": {truncate_text(self._scrubber.head(text, SERVER_TEXT_CHARACTERS), SERVER_TEXT_CHARACTERS)}"
        return ""


async def _read_beginning(response: httpx2.Response) -> bytes:
    """Read one byte more than the limit of a body, which shows that the body is too long."""
    body = bytearray()
    with anyio.CancelScope() as enough:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > BODY_MAX_BYTES:
                enough.cancel()  # at its next read: a stream that is merely left is closed by nobody, later
    return bytes(body[: BODY_MAX_BYTES + 1])


def _json(body: bytes) -> Any:
    """Return the value; None when the text is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _address_mistakes(base_url: object, *, keyed: bool, allow_plain_http: bool) -> Iterator[str]:
    """Yield the mistakes in an address. The address is not shown: text in a wrong place may be a password."""
    import httpx2

    try:
        url = httpx2.URL(str(base_url))
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    port = 80 if url.port is None else url.port
    if url.scheme not in ("http", "https") or not url.host or not 0 < port < 65536:
        yield "base_url must be like https://HOST/v1 or http://127.0.0.1:11434/v1"
    elif url.userinfo or "?" in str(base_url) or "#" in str(base_url):
        yield "base_url must have no user, no ? and no #; a key is given as api_key"
    elif keyed and url.scheme == "http" and not allow_plain_http and not _is_loopback(url.host):
        yield "an api_key would travel in clear text: use https, or allow_plain_http=True in a network you trust"


def _word_mistakes(model: object, api_key: object, parameters: Mapping[str, object]) -> Iterator[str]:
    if not isinstance(model, str) or not 0 < len(model) <= 200 or not model.isprintable():
        yield "model must be its name, at most 200 characters"
    if api_key is not None and not (isinstance(api_key, str) and _KEY.fullmatch(api_key)):
        yield "api_key must be ASCII characters without spaces; one read from a file may end with a line break"
    if taken := sorted(_OURS & parameters.keys()):
        yield f"parameters must not hold {', '.join(taken)}"
    try:
        json.dumps(dict(parameters), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        yield "parameters must be JSON"


def _timeout_mistakes(timeout: object) -> Iterator[str]:
    seconds = to_seconds(timeout)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= TIMEOUT_MAX_SECONDS:
        yield f"timeout must be more than 0 and at most {TIMEOUT_MAX_SECONDS:.0f} seconds"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
