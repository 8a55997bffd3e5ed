"""The settings of `[temporal]`: the connection to a Temporal cluster, and the times of its workers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

from craftcore.config.loader import Between, Spelt, table_of
from craftcore.config.references import PORT_SAID, REFERENCE_SAID, endpoint, is_one_line, is_port, secret_reference
from craftcore.errors import ConfigInvalid, InvalidInput

_ADDRESS = re.compile(r"(?:[^\s:/@]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_URL = re.compile(r"temporal://([^/?#@]+)(?:/([^/?#]*))?")
_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

ADDRESS_SAID = 'the host and port of a cluster, like "127.0.0.1:7233"'


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and is_port(found[1])


def _is_own_port(text: str) -> bool:
    found = endpoint(text)
    return found is not None and not found.path


ClusterAddress = Annotated[str, Spelt(_is_address, ADDRESS_SAID)]
Name = Annotated[str, Spelt(lambda text: len(text) <= 200 and is_one_line(text), "one line, at most 200 characters")]
FilePath = Annotated[str, Spelt(lambda text: len(text) <= 4096 and is_one_line(text), "the path of a PEM file")]
KeyReference = Annotated[str, Spelt(secret_reference, REFERENCE_SAID, hidden=True)]
OwnPort = Annotated[str, Spelt(_is_own_port, PORT_SAID)]
ObjectName = Annotated[str, Spelt(_OBJECT.fullmatch, 'an object of a module, like "mycodec:converter"')]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalSettings:
    """The address of the cluster and the times of a worker. Times in seconds; empty text: not set.

    task_queue         empty: the name of the app
    api_key            a reference to the key; with it, the connection uses TLS
    tls_cert, tls_key  PEM files of the client's certificate, both or none; with them, the connection uses TLS
    data_converter     the object that encodes payloads, "module:name"
    heartbeat_timeout  a worker that is silent for this long is dead
    sticky_timeout     how long a task that a dead worker had in memory waits for it
    task_timeout       how long the cluster waits for a worker that has taken an event of a task, and may be frozen
    shutdown_grace     how long running turns may go on when the worker stops
    metrics            where numbers about the worker can be read
    """

    address: ClusterAddress = "127.0.0.1:7233"
    namespace: Name = "default"
    task_queue: Name = ""
    api_key: KeyReference = ""
    tls_cert: FilePath = ""
    tls_key: FilePath = ""
    data_converter: ObjectName = ""
    heartbeat_timeout: Annotated[float, Between(1, 3600)] = 10.0
    sticky_timeout: Annotated[float, Between(0.1, 600)] = 2.0
    task_timeout: Annotated[float, Between(1, 120)] = 10.0
    shutdown_grace: Annotated[float, Between(0, 3600)] = 30.0
    metrics: OwnPort = ""


def relation_mistakes(settings: TemporalSettings) -> Iterator[str]:
    """Yield a line for each setting that contradicts another."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        absent, present = ("tls_key", "tls_cert") if settings.tls_cert else ("tls_cert", "tls_key")
        yield f"temporal.{absent} is not set; temporal.{present} is of no use without it"


def replace_settings(settings: TemporalSettings, changes: Mapping[str, str | float]) -> TemporalSettings:
    """Return the settings with other values, as a settings file would have them. Raises ConfigInvalid."""
    mistakes: list[str] = []
    found: TemporalSettings = table_of(
        "temporal", {"temporal": TemporalSettings}, {**asdict(settings), **changes}, mistakes
    )
    mistakes.extend(relation_mistakes(found))
    if mistakes:
        raise ConfigInvalid("\n".join(mistakes))
    return found


def read_url(url: str, settings: TemporalSettings) -> TemporalSettings:
    """Return the settings with the address and the namespace of a URL. Raises InvalidInput."""
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidInput(f"{url!r:.200} names no cluster; give temporal://host:port/namespace")
    changes = {"address": found[1]} | ({"namespace": found[2]} if found[2] else {})
    try:
        return replace_settings(settings, changes)
    except ConfigInvalid as error:
        raise InvalidInput(error.message) from error
