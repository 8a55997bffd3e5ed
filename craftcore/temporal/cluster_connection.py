"""The one way to a cluster: its address, TLS, API key and data converter, as the settings name them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client as Client
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from craftcore.config.temporal_settings import TemporalSettings
from craftcore.daemon.secrets import get_process_secret
from craftcore.errors import ClusterUnavailable, ConfigInvalid, NotFound, PermissionRefused, StateRefused
from craftcore.outcome_exceptions import NoEffect

T = TypeVar("T")

CONNECT_SECONDS = 10.0
"""How long an address may leave a connection without an answer."""

UNAVAILABLE = {
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
}
BROKEN = "transport error"
"""The message of the library, with the status UNKNOWN, about a connection that broke during a call."""

UNUSABLE = {
    "PrivateKeyParseError": "temporal.tls_key: {key} holds no private key that can be read without a password",
    "NoCertificatesPresented": "temporal.tls_cert: {cert} holds no certificate",
    "InvalidCertificate(BadEncoding)": "temporal.tls_cert: {cert} holds a certificate that cannot be read",
    "InconsistentKeys(KeyMismatch)": "temporal.tls_key: {key} is not the key of the certificate {cert}",
}
"""Errors of the library about the PEM files of a client, and the mistake that each means."""

FORBIDDEN = {RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED}


async def connect(settings: TemporalSettings, runtime: Runtime | None = None) -> Client:
    """Connect to the cluster of the settings. `runtime` counts what the client does; None: nothing does.

    Raises ClusterUnavailable when nothing answers there, and PermissionRefused when the cluster refuses the key or the
    certificate. Raises ConfigInvalid for an impossible address, and for a secret, file or data converter that is
    missing or cannot be used.
    """
    api_key = _get_secret(settings.api_key) if settings.api_key else None
    tls = _read_certificate(settings) if settings.tls_cert else api_key is not None
    converter = _import_converter(settings.data_converter)
    try:
        with translating(settings):
            return await asyncio.wait_for(
                Client.connect(
                    settings.address,
                    namespace=settings.namespace,
                    api_key=api_key,
                    tls=tls,
                    data_converter=converter,
                    runtime=runtime,
                ),
                CONNECT_SECONDS,
            )
    except TimeoutError as error:
        raise ClusterUnavailable(
            f"no cluster answers at {settings.address} within {CONNECT_SECONDS:g} s: start it, or correct "
            "temporal.address"
        ) from error
    except ValueError as error:
        raise ConfigInvalid(
            f"temporal.address is {settings.address!r:.200}, which the library refuses ({error}): give HOST:PORT"
        ) from error
    except RuntimeError as error:  # the library has no type for it
        if mistake := _find_mistake(str(error), settings):
            raise ConfigInvalid(mistake) from error
        raise ClusterUnavailable(
            f"no cluster answers at {settings.address} ({_find_reason(error)}): start it, or correct temporal.address"
        ) from error


def _find_mistake(message: str, settings: TemporalSettings) -> str | None:
    """Return what is wrong with the files of the client's certificate, if that is the reason."""
    for failure, mistake in UNUSABLE.items():
        if settings.tls_cert and f"Transport, {failure})" in message:
            return mistake.format(key=settings.tls_key, cert=settings.tls_cert)
    return None


def _find_reason(error: RuntimeError) -> str:
    """Return the reason of the operating system; the library wraps it in the names of its own layers."""
    text = " ".join(str(error).split())
    reasons = re.findall(r'(?:message|error): "([^"]+)"', text)
    return f"{reasons[-1] if reasons else text:.200}"


@contextmanager
def translating(settings: TemporalSettings) -> Iterator[None]:
    """Raise what a failed call to the cluster means to a caller.

    The error is ClusterUnavailable, PermissionRefused, NotFound for the namespace, or else StateRefused.
    """
    try:
        yield
    except RPCError as error:
        message = f"{' '.join(error.message.split()):.200}"
        if error.status in UNAVAILABLE or (error.status is RPCStatusCode.UNKNOWN and BROKEN in message):
            raise ClusterUnavailable(f"{settings.address} does not answer ({message}): try later") from error
        if error.status in FORBIDDEN:
            raise PermissionRefused(f"{settings.address} refused the API key or certificate: {message}") from error
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NotFound(f"{settings.address}, namespace {settings.namespace}: {message}") from error
        raise StateRefused(f"{settings.address} refused the call: {message}") from error


def translate_calls(kind: type[T]) -> type[T]:
    """Put each public call of a class within `translating`. Its objects have `_settings`."""
    for name, call in list(vars(kind).items()):
        if not name.startswith("_") and iscoroutinefunction(call):
            setattr(kind, name, _translate(call))
    return kind


def _translate(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(call)
    async def call_translated(self: Any, *args: Any, **named: Any) -> Any:
        with translating(self._settings):
            return await call(self, *args, **named)

    return call_translated


def _get_secret(reference: str) -> str:
    try:
        return get_process_secret(reference)
    except NoEffect as missing:
        raise ConfigInvalid(f"temporal.api_key: {missing}") from missing


def _read_certificate(settings: TemporalSettings) -> TLSConfig:
    try:
        return TLSConfig(
            client_cert=Path(settings.tls_cert).read_bytes(), client_private_key=Path(settings.tls_key).read_bytes()
        )
    except OSError as error:
        raise ConfigInvalid(
            f"temporal.tls_cert or tls_key: {error.filename} cannot be read: {error.strerror}"
        ) from error


def _import_converter(named: str) -> DataConverter:
    if not named:
        return DataConverter.default
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigInvalid(f"temporal.data_converter {named} cannot be imported: {error}") from error
    if not isinstance(found, DataConverter):
        raise ConfigInvalid(f"temporal.data_converter {named} is {type(found).__name__}: give a DataConverter")
    return found
