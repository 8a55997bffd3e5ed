"""How long the WAL's file may stay, and Litestream, which must see what it has missed.

Litestream knows where it is in the WAL by the last frame that it has read. While it is away, or lets go of the WAL for
an instant, others write on and may begin the WAL anew. If that frame still lies in the file then, Litestream (0.5.17)
takes the new WAL for the next one and goes on: what was written in between is missing from the replica, and what is
restored from it is damaged. So of a database that it replicates the WAL is cut off by whoever begins it anew. Then the
frame is gone, and Litestream copies the whole database.
"""

from __future__ import annotations

import apsw

WAL_LIMIT = 64 << 20
"""Bytes that a WAL which is begun anew may keep of its length: to write over them is quicker than to lengthen it."""

ITS_TABLE = "SELECT count(*) FROM sqlite_schema WHERE name = '_litestream_seq'"


def limit_wal(connection: apsw.Connection) -> None:
    """Say to this connection how much it leaves when it begins the WAL anew: nothing, if Litestream was ever here."""
    is_replicated = connection.execute(ITS_TABLE).get
    connection.pragma("journal_size_limit", 0 if is_replicated else WAL_LIMIT)
