"""The manifest of a backup: its checksum, its database and its moment. Pure.

FILE.manifest.json   {"craftcore_backup": 1, "sha256", "bytes", "taken_at", "version", "database_id", "epoch", "schema",
                     "rows", "head"}; the head is what `craftcore verify --against` reads
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from craftcore.clock import YEAR_10000, utc_iso
from craftcore.errors import DatabaseInvalid

VERSION = 1
ENDS = ".manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of a backup. `sha256` and `bytes` are of the file, all else of its content. `database_id`: None
    when no daemon ever ran on it. `epoch`: that of the last daemon, 0 for none. `schema`: the last migration. `rows`:
    the number of rows by table. `head`: the ends of the chains, as in a file of `craftcore verify --write-head`; None
    when they cannot be read.
    """

    sha256: str
    bytes: int
    taken_at: float
    version: str
    database_id: str | None
    epoch: int
    schema: str
    rows: dict[str, int]
    head: dict[str, Any] | None


def manifest_path(file: Path) -> Path:
    return file.with_name(file.name + ENDS)


def manifest_text(manifest: Manifest) -> str:
    """Return the manifest as the text of its file."""
    document = {"craftcore_backup": VERSION, **asdict(manifest), "taken_at_iso": utc_iso(manifest.taken_at)}
    return json.dumps(document, indent=2) + "\n"


def manifest_from(text: str, path: Path) -> Manifest:
    """Return what `manifest_text` wrote. Raises DatabaseInvalid for anything else."""
    from msgspec import convert  # most commands read no manifest, and importing it takes long

    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("craftcore_backup") != VERSION:
            raise ValueError("it is not an object")
        manifest = convert(document, Manifest)
        if not 0 <= manifest.taken_at < YEAR_10000:
            raise ValueError("taken_at is not a moment")
        return manifest
    except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors
        raise DatabaseInvalid(f"{path}: not the manifest of a backup: {error!s:.200}") from error


def list_expired(others: Iterable[tuple[Path, Manifest]], new: Manifest, keep: int) -> list[Path]:
    """Return which of these backups go, so that `keep` stay with the new one: the oldest, of the same database.

    A backup that claims to be newer than the new one (a clock was set back) stays, and is not counted.
    """
    if new.database_id is None:
        return []  # nothing shows of which database the others are
    older = [
        (manifest.taken_at, file)
        for file, manifest in others
        if manifest.database_id == new.database_id and manifest.taken_at <= new.taken_at
    ]
    older.sort()
    return [file for _, file in older[: max(0, len(older) - (keep - 1))]]
