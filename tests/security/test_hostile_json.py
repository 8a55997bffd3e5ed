"""Hostile JSON and TOML: each reader accepts it, or refuses it with an error of craftcore that names the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time
from typing import Any

import pytest

from craftcore.cli.execution.source import envelope_in, record_in
from craftcore.cli.payload import parse_strict_json, utf8_text
from craftcore.config import Config
from craftcore.daemon.lock_note import LockInfo, note_from, note_line
from craftcore.errors import CraftcoreError, InvalidInput
from craftcore.executions.chain.head import Head, head_from, head_text
from craftcore.executions.document.diff import differences
from craftcore.executions.document.export import document_of
from craftcore.executions.record import faults, refusal_to_replay
from tests.support.fakes import VirtualCore, a_trigger
from tests.support.hostile_json import objects, texts
from tests.support.populated_database import World

MANY = 150
CAMPAIGN = 100_000

SHIPPED = (Path(__file__).parents[2] / "config" / "craftcore.toml").read_bytes()
UNCOMMENTED = b"\n".join(line.removeprefix(b"#") for line in SHIPPED.splitlines() if b"=" in line)
PAYLOAD = b'{"city": "Berlin", "days": [1, 2, 3], "deep": {"a": {"b": [true, null, 1.5, "\xc3\xbc"]}}, "t": "\\u0001"}'
HEAD = head_text(
    Head(at=1.5, place=2, hash="sha256:aa", newest=3, unchained_to=0, removed=0, audit_place=0, audit_hash="")
).encode()
NOTE = note_line(LockInfo(pid=12, host="h", started_at=1.5, database_id="d", epoch=3))


@dataclass
class Readers:
    """The functions that read text from outside, each with valid examples."""

    core: VirtualCore
    world: World
    folder: Path
    record: bytes

    def all(self) -> dict[str, tuple[list[bytes], Callable[[bytes], object]]]:
        return {
            "the payload of emit": ([PAYLOAD], self.emit),
            "a signal": ([PAYLOAD, b'"text"', b"12"], self.signal),
            "an answer": ([b"send", b"hold", b"a text of its own"], self.answer),
            "a record": ([self.record], self.record_file),
            "an envelope": ([PAYLOAD], self.envelope_file),
            "a head": ([HEAD], lambda text: head_from(utf8_text(text, "it", 1 << 20))),
            "a lock file": ([NOTE], note_from),
            "the settings": ([SHIPPED, UNCOMMENTED], self.settings),
        }

    def emit(self, text: bytes) -> None:
        payload = parse_strict_json(utf8_text(text, "it", 1 << 20), "it")
        accepted = self.core.triggers.accept(a_trigger(payload=payload))
        assert json.loads(accepted.payload_json) == payload

    def signal(self, text: bytes) -> None:
        payload = parse_strict_json(utf8_text(text, "it", 1 << 20), "it")
        self._undone(lambda tx: self.core.tasks.signal(tx, self.world.waits, "another", payload))

    def answer(self, text: bytes) -> None:
        choice = text.decode(errors="surrogateescape")
        self._undone(
            lambda tx: self.core.tasks.answer(
                tx, self.world.question, choice, note=choice, reference=None, answered_by="a"
            )
        )

    def record_file(self, text: bytes) -> None:
        path = self.folder / "record.json"
        path.write_bytes(text)
        record = record_in(str(path))
        assert all(faults(record))
        assert refusal_to_replay(record) != ""
        json.dumps(document_of(record))
        assert differences(record, record) == []

    def envelope_file(self, text: bytes) -> None:
        path = self.folder / "envelope.json"
        path.write_bytes(text)
        envelope_in(str(path))

    def settings(self, text: bytes) -> None:
        path = self.folder / "settings.toml"
        path.write_bytes(text)
        Config.load(path)

    def _undone(self, work: Callable[[Any], object]) -> None:
        class Rollback(Exception):
            pass

        try:
            with self.core.transaction() as tx:
                work(tx)
                raise Rollback
        except Rollback:
            pass


NAMES = (
    "the payload of emit", "a signal", "an answer", "a record", "an envelope", "a head", "a lock file", "the settings"
)  # fmt: skip


@pytest.fixture
def readers(here, cli, tmp_path) -> Readers:
    exported = cli("export", here.world.ended)
    assert exported.code == 0
    return Readers(here.core, here.world, tmp_path, exported.out.encode())


def is_accepted(read: Callable[[bytes], object], text: bytes) -> bool:
    """Return whether a reader accepts a text, and check that a refusal is a short CraftcoreError."""
    try:
        read(text)
        return True
    except CraftcoreError as error:
        refused = error
    assert 0 < len(refused.message.splitlines()[0]) < 2_000, text
    assert refused.exit_code in (1, 64, 78), text
    return False


@dataclass
class Outcome:
    """The result for each text, and the processor seconds that its reader took."""

    accepted: list[bool] = field(default_factory=list)
    cost: list[tuple[float, bytes]] = field(default_factory=list)

    def summary(self) -> str:
        cost = sorted(self.cost)
        (slowest, text), (rare, _) = cost[-1], cost[-1 - len(cost) // 1_000]
        return (
            f"{len(cost):,} texts, {sum(self.accepted):,} accepted; processor time of 99.9 %: at most "
            f"{rare * 1e3:.1f} ms, longest: {slowest * 1e3:.1f} ms ({len(text):,} bytes)"
        )


def read_all(readers: Readers, name: str, seed: int, count: int) -> Outcome:
    sound, read = readers.all()[name]
    outcome = Outcome()
    for text in texts(seed, count, sound):
        before = thread_time()
        try:
            outcome.accepted.append(is_accepted(read, text))
        except Exception as error:
            raise AssertionError(f"{name}: {text[:3000]!r}") from error
        outcome.cost.append((thread_time() - before, text))
    return outcome


@pytest.mark.parametrize("name", NAMES)
def test_sound_json_is_accepted(readers, name):
    sound, read = readers.all()[name]

    assert any(is_accepted(read, text) for text in sound)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_json_is_refused_by_a_craftcore_error(readers, name):
    outcome = read_all(readers, name, seed=7, count=MANY)

    assert False in outcome.accepted or name == "a lock file"


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
def test_hostile_json_is_refused_a_hundred_thousand_times(readers, name, capsys):
    """The summary with the processor times is only printed, because the times depend on the machine."""
    outcome = read_all(readers, name, seed=11, count=CAMPAIGN // len(NAMES))

    with capsys.disabled():
        print(f"\n{name}: {outcome.summary()}")


def test_invalid_json_from_a_program_is_refused(core):
    answers = set()
    for payload in objects(seed=3, count=MANY):
        try:
            core.triggers.accept(a_trigger(payload=payload))
            answers.add("taken")
        except InvalidInput:
            answers.add("refused")

    assert answers == {"taken", "refused"}


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 200_000, b"a=" + b"[" * 200_000, b"9" * 100_000])
@pytest.mark.parametrize("name", NAMES)
def test_deep_or_long_json_is_refused_without_a_crash(readers, name, text):
    _, read = readers.all()[name]

    assert not is_accepted(read, text) or name == "a lock file"


def test_setting_with_a_long_name_is_refused_in_a_readable_line(readers):
    _, read = readers.all()["the settings"]

    assert not is_accepted(read, b"[email]\nima" + b"1" * 5_000 + b" = 1\n")


def test_duplicate_key_among_many_is_found():
    """The search for duplicates takes one pass over all keys."""
    body = ",".join(f'"k{number}":1' for number in range(200_000))

    with pytest.raises(InvalidInput, match="the key 'k199999' twice"):
        parse_strict_json(f'{{{body},"k199999":2}}', "it")


@pytest.mark.parametrize("name", ["record", "head", "payload", "settings"])
def test_command_line_refuses_hostile_json_in_a_line(cli, here, tmp_path, name):
    """A few texts of each kind pass through all layers."""
    sound = {"record": cli("export", here.world.ended).out.encode(), "head": HEAD, "payload": PAYLOAD}
    arguments = {
        "record": ["replay", "./it.json"],
        "head": ["verify", "--against", "it.json"],
        "payload": ["emit", "nap", "--payload", "@it.json"],
        "settings": ["--config", "it.json", "status"],
    }[name]
    for text in texts(5, 20, [sound.get(name, SHIPPED)]):
        (tmp_path / "it.json").write_bytes(text)

        ended = cli(*arguments)

        assert ended.code in (0, 1, 11, 64, 65, 78), (ended.err, text)
        assert "a bug in craftcore" not in ended.err, text
