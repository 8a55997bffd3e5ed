"""Permissions of user SQL: full access to the user's tables, none to the tables of craftcore."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.errors import InvalidInput, RowInvalid, StorageError
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.transaction import BulkStatement, Transaction
from craftcore.storage.user_sql.authorizer import list_reserved_names
from craftcore.storage.writer import Writer
from tests.support.user_table import a_database, ask, everything, notes, record, records, write, write_then

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(tmp_path, clock) -> Database:
    return a_database(tmp_path, clock)


# Permitted statements


async def test_user_sql_reads_and_writes_in_every_way_of_a_transaction(database, clock):
    statement = BulkStatement("INSERT INTO notes (id, text) VALUES {rows} RETURNING id", width=2)

    def look(tx: Transaction) -> dict[str, Any]:
        return {
            "many": sorted(id for (id,) in tx.execute_many(statement, [(id, f"n{id}") for id in range(2, 50)])),
            "changed": tx.run("UPDATE notes SET size = 3 WHERE id < :limit", limit=4),
            "one": tx.fetch_one("SELECT id, text FROM notes WHERE id >= :id ORDER BY id", id=1),
            "none": tx.fetch_one("SELECT id FROM notes WHERE id = 99"),
            "all": tx.fetch_all("SELECT id, size FROM notes WHERE id < 3 ORDER BY id"),
            "tuples": tx.fetch_tuples("SELECT id FROM notes WHERE id BETWEEN ? AND ? ORDER BY id", (2, 4)),
            "value": tx.fetch_value("SELECT id FROM notes WHERE id > 5 ORDER BY id"),
            "fact": tx.fetch_value("SELECT value FROM facts WHERE name = 'first'"),
            "now": tx.now,
        }

    async with Writer(database) as writer:
        seen: dict[str, Any] = await writer.commit_user_sql(look, (), lambda tx, result: result)

    assert seen == {
        "many": list(range(2, 50)),
        "changed": 3,
        "one": {"id": 1, "text": "first"},
        "none": None,
        "all": [{"id": 1, "size": 3}, {"id": 2, "size": 3}],
        "tuples": [(2,), (3,), (4,)],
        "value": 6,
        "fact": "ours",
        "now": clock.now(),
    }


async def test_user_sql_may_create_change_and_drop_user_tables(database):
    def build(tx: Transaction) -> None:
        tx.run(
            """
            CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, note INTEGER REFERENCES notes ON DELETE CASCADE);
            CREATE INDEX orders_note ON orders (note);
            CREATE VIEW open_orders AS SELECT id, events FROM (SELECT id, note AS events FROM orders);
            CREATE TRIGGER orders_added AFTER INSERT ON orders BEGIN UPDATE notes SET size = 1 WHERE id = new.note; END;
            INSERT INTO orders (note) VALUES (1) RETURNING id;
            ALTER TABLE orders ADD COLUMN events TEXT;
            UPDATE orders SET events = 'a column named like a table of craftcore';
            ALTER TABLE orders RENAME TO purchases;
            ALTER TABLE purchases RENAME COLUMN note TO about;
            ALTER TABLE notes ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue' CHECK (colour <> '');
            INSERT OR REPLACE INTO notes (id, text) VALUES (1, 'again');
            REINDEX orders_note;
            CREATE TABLE copied AS SELECT name FROM facts;
            """
        )

    def clear(tx: Transaction) -> None:
        tx.run("DROP VIEW open_orders; DROP TRIGGER orders_added; DROP INDEX orders_note; DROP TABLE purchases")

    async with Writer(database) as writer:
        await writer.commit_user_sql(build, (), record)
        built = {name for (name,) in ask(database, "SELECT name FROM sqlite_schema")}
        cascaded = ask(database, "SELECT * FROM purchases"), ask(database, "SELECT text FROM notes")
        await writer.commit_user_sql(clear, (), record)

    assert {"purchases", "orders_note", "open_orders", "orders_added", "copied"} <= built
    assert cascaded == ([], [("again",)])
    assert "purchases" not in {name for (name,) in ask(database, "SELECT name FROM sqlite_schema")}


async def test_user_sql_may_use_a_full_text_index(database):
    def index(tx: Transaction) -> None:
        tx.run("CREATE VIRTUAL TABLE words USING fts5(text)")
        tx.run("INSERT INTO words SELECT text FROM notes")

    def find(tx: Transaction) -> Any:
        tx.run("INSERT INTO words VALUES ('second')")
        return tx.fetch_tuples("SELECT text FROM words WHERE words MATCH ?", ("first OR second",))

    async with Writer(database) as writer:
        await writer.commit_user_sql(index, (), record)
        found = await writer.commit_user_sql(find, (), lambda tx, result: result)
        await writer.commit_user_sql(lambda tx: tx.run("DROP TABLE words"), (), record)

    assert found == [("first",), ("second",)]


async def test_user_sql_may_read_the_views(database):
    views = ("v_overdue", "v_running", "v_dead", "v_unknown", "v_inbox", "v_timeline")

    def look(tx: Transaction) -> list[int]:
        return [tx.fetch_value(f"SELECT count(*) FROM {view} WHERE 1") for view in views]

    async with Writer(database) as writer:
        assert await writer.commit_user_sql(look, (), lambda tx, result: result) == [0] * len(views)


async def test_constraint_error_is_raised_in_the_user_function_which_may_continue(database):
    def upsert(tx: Transaction) -> str:
        try:
            tx.run("INSERT INTO notes (text) VALUES ('first')")
        except RowInvalid as refused:
            write(tx, 2)
            return str(refused)
        raise AssertionError("the constraint must refuse it")

    async with Writer(database) as writer:
        message = await writer.commit_user_sql(upsert, (), lambda tx, result: result)

    assert "UNIQUE constraint failed: notes.text" in message
    assert notes(database) == [1, 2]


async def test_uncaught_constraint_error_is_raised_to_the_caller(database):
    async with Writer(database) as writer:
        with pytest.raises(RowInvalid, match="CHECK constraint failed"):
            await writer.commit_user_sql(write_then("UPDATE notes SET size = 1000"), (2,), record)

        assert writer.failed is None
    assert notes(database) == [1]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSRT INTO notes VALUES (1)", 'near "INSRT": syntax error: INSRT INTO notes'),
        ("UPDATE nowhere SET x = 1", "no such table: nowhere"),
        ("SELECT ?", "Incorrect number of bindings"),
        ("SELECT zeroblob(2000000000)", "string or blob too big"),
    ],
)
async def test_invalid_sql_is_reported_with_its_text(database, sql, message):
    def user(tx: Transaction) -> None:
        write(tx, 2)
        tx.fetch_tuples(sql)

    async with Writer(database) as writer:
        with pytest.raises(InvalidInput) as refused:
            await writer.commit_user_sql(user, (), record)

    assert message in str(refused.value)
    assert notes(database) == [1]


# Refused statements


REFUSED = [
    "BEGIN",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT mine",
    "RELEASE work_group",
    "ROLLBACK TO work_group",
    "PRAGMA writable_schema = 1",
    "PRAGMA foreign_keys = 0",
    "PRAGMA defer_foreign_keys = 1",
    "PRAGMA user_version = 7",
    "PRAGMA page_size = 512",
    "PRAGMA synchronous",
    "SELECT * FROM pragma_table_info('notes')",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "ANALYZE",
    "ANALYZE notes",
    "REINDEX",
    "REINDEX facts",
    "REINDEX triggers_id",
    "VACUUM",
    "VACUUM INTO '/nowhere/copy.db'",
    "INSERT INTO facts VALUES ('mine', 'x')",
    "INSERT OR REPLACE INTO facts VALUES ('first', 'x')",
    "INSERT INTO facts VALUES ('first', 'x') ON CONFLICT DO UPDATE SET value = 'x'",
    "INSERT INTO facts SELECT text, text FROM notes RETURNING name",
    "UPDATE facts SET value = 'x'",
    'UPDATE main."FACTS" SET value = 1',
    "UPDATE notes SET size = 1; UPDATE facts SET value = 'x'",
    "DELETE FROM facts",
    "WITH gone AS (SELECT 'first' AS name) DELETE FROM facts WHERE name IN (SELECT name FROM gone)",
    "EXPLAIN DELETE FROM facts",
    "DELETE FROM schema_migrations",
    "DROP TABLE facts",
    "DROP INDEX triggers_id",
    "ALTER TABLE facts RENAME TO theirs",
    "ALTER TABLE facts ADD COLUMN more",
    "ALTER TABLE facts DROP COLUMN value",
    "ALTER TABLE facts RENAME COLUMN value TO worth",
    "CREATE INDEX mine ON facts (value)",
    "CREATE TRIGGER mine AFTER INSERT ON facts BEGIN SELECT 1; END",
    "CREATE TEMP TRIGGER mine AFTER INSERT ON main.facts BEGIN SELECT 1; END",
    "CREATE TEMP TABLE facts (name, value)",
    "CREATE TABLE temp.facts (name, value)",
    "CREATE TEMP TABLE harmless (x)",
    "CREATE TABLE temp.harmless (x)",
    "CREATE VIRTUAL TABLE temp.harmless USING fts5(x)",
    "CREATE TEMP VIEW facts AS SELECT 1",
    "CREATE VIRTUAL TABLE temp.facts USING fts5(name)",
    "CREATE VIRTUAL TABLE facts USING fts5(name)",
    "CREATE TABLE IF NOT EXISTS Facts (x)",
    "CREATE VIEW IF NOT EXISTS facts AS SELECT 1",
    "CREATE TABLE triggers_id (x)",
    "ALTER TABLE notes RENAME TO facts",
    "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'x')",
    "UPDATE sqlite_master SET sql = 'x'",
    "DELETE FROM sqlite_schema",
    "SELECT load_extension('mine')",
    "DROP VIEW v_dead",
    "CREATE VIEW IF NOT EXISTS V_Dead AS SELECT 1",
    "CREATE TABLE IF NOT EXISTS v_dead (x)",
    "CREATE TRIGGER mine INSTEAD OF INSERT ON v_dead BEGIN SELECT 1; END",
    "ALTER TABLE notes RENAME TO v_dead",
    "DELETE FROM v_dead",
    "CREATE TABLE mine (name TEXT REFERENCES facts ON DELETE CASCADE)",
    "CREATE TABLE mine (trigger_id TEXT REFERENCES Triggers (id))",
    "ALTER TABLE notes ADD COLUMN trigger_id TEXT REFERENCES triggers (id)",
    "CREATE TABLE mine (name TEXT REFERENCES facts); ALTER TABLE mine RENAME TO yours",
]


async def test_forbidden_user_sql_is_refused_and_nothing_is_written(database):
    wrong: dict[str, object] = {}

    async with Writer(database) as writer:
        for id, sql in enumerate(REFUSED, 3):
            before = everything(database)
            try:
                wrong[sql] = await writer.commit_user_sql(write_then(sql), (2,), record)
            except InvalidInput:
                if (after := everything(database)) != before:
                    wrong[sql] = {table: rows for table, rows in after.items() if rows != before.get(table)}
            assert writer.failed is None, sql
            await writer.commit_user_sql(write, (id,), record)
            assert (notes(database)[-1], records(database)[-1]) == (id, id), sql

    assert wrong == {}


async def test_ignored_refusal_of_user_sql_still_fails_the_transaction(database):
    wrong: dict[str, object] = {}

    async with Writer(database) as writer:
        for id, sql in enumerate((sql for sql in REFUSED if "REFERENCES" not in sql), 2):
            before = everything(database)
            await writer.commit_user_sql(write_then(sql, caught=True), (id,), lambda tx, _: None)
            after = everything(database)
            if {table for table in after if after[table] != before.get(table)} != {"notes"}:
                wrong[sql] = after
            assert notes(database)[-1] == id, sql

    assert wrong == {}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "COMMIT",
            "TRANSACTION COMMIT is refused: a user transaction reads every table and changes your own; it be",
        ),
        ("PRAGMA foreign_keys = 0", "PRAGMA foreign_keys 0 is refused"),
        ("DROP TABLE facts", "DROP TABLE facts is refused: it is craftcore's own, which you may read, not change"),
        ("INSERT INTO sqlite_schema VALUES (1, 2, 3, 4, 5)", "table sqlite_master may not be modified"),
        ("VACUUM", "cannot VACUUM from within a transaction"),
        (
            "CREATE TABLE mine (name REFERENCES facts)",
            "the table mine has a foreign key to facts, which is craftcore's",
        ),
    ],
)
async def test_refusal_of_user_sql_names_operation_and_rule(database, sql, message):
    async with Writer(database) as writer:
        with pytest.raises(InvalidInput) as refused:
            await writer.commit_user_sql(write_then(sql), (2,), record)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    "trigger",
    [
        "CREATE TRIGGER sneaks AFTER INSERT ON notes BEGIN INSERT INTO facts VALUES ('sneaked', 'in'); END",
        "CREATE TRIGGER sneaks AFTER INSERT ON notes BEGIN DELETE FROM facts; END",
        """
        CREATE VIEW front AS SELECT id FROM notes;
        CREATE TRIGGER sneaks INSTEAD OF INSERT ON front BEGIN UPDATE facts SET value = 'x'; END;
        CREATE TRIGGER opens AFTER INSERT ON notes BEGIN INSERT INTO front VALUES (new.id); END;
        """,
    ],
)
async def test_user_trigger_that_writes_a_craftcore_table_is_refused_by_name(database, trigger):
    with database.transaction() as tx:
        tx.run(trigger)
    database.close()
    before = everything(database)

    async with Writer(database) as writer:
        with pytest.raises(InvalidInput, match="facts by the trigger sneaks is refused"):
            await writer.commit_user_sql(write, (2,), record)

    assert everything(database) == before


async def test_internal_sql_is_refused_as_user_sql_with_the_same_text(database):
    text = "UPDATE facts SET value = 'changed'"

    async with Writer(database) as writer:
        for id in (2, 3):
            await writer.commit_user_sql(write, (id,), lambda tx, _: tx.run(text))
            with pytest.raises(InvalidInput, match="UPDATE facts is refused"):
                await writer.commit_user_sql(write_then(text), (9,), record)

    assert notes(database) == [1, 2, 3]


async def test_reserved_names_are_those_of_a_new_database(tmp_path, clock):
    database = Database(tmp_path / "new.db", clock)
    migrate(database, clock)

    assert list_reserved_names() == {name.lower() for (name,) in ask(database, "SELECT name FROM sqlite_schema")}
    assert {"triggers", "triggers_pending", "facts", "schema_migrations"} <= list_reserved_names()


async def test_deferred_foreign_key_error_belongs_to_the_user_and_not_the_flush(database):
    fatal: list[StorageError] = []
    deferred = "CREATE TABLE line (note INTEGER REFERENCES notes DEFERRABLE INITIALLY DEFERRED)"

    def dangle(tx: Transaction) -> None:
        tx.run("INSERT INTO line VALUES (77)")

    def resolve(tx: Transaction) -> None:
        dangle(tx)
        write(tx, 77)

    async with Writer(database, on_fatal=fatal.append) as writer:
        await writer.commit_user_sql(lambda tx: tx.run(deferred), (), record)
        with pytest.raises(RowInvalid, match="a deferred foreign key leads to no row; nothing was written"):
            await writer.commit_user_sql(dangle, (), record)
        left = ask(database, "SELECT count(*) FROM line")
        await writer.commit_user_sql(resolve, (), record)

    assert left == [(0,)]
    assert notes(database) == [1, 77]
    assert fatal == []
