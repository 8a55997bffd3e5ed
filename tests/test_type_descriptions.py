"""First reads of a class by concurrent threads, which crash the process when msgspec alone handles them."""

from __future__ import annotations

import subprocess
from typing import Annotated, Any

import msgspec
import pytest

from craftcore.serialization.decode import decode
from craftcore.serialization.type_descriptions import describe_type
from tests.support.processes import PATIENCE
from tests.support.warm_parent import start

FIRST_READS = """
import sys
import threading
from dataclasses import make_dataclass

import msgspec

from craftcore.serialization.decode import decode

TYPES, THREADS = 150, 4
NAMES = [f"part{number}" for number in range(10)]
TEXT = '{"inner": {%s}}' % ", ".join(f'"{name}": 1' for name in NAMES)
make = {"dataclass": make_dataclass, "struct": msgspec.defstruct}[sys.argv[1]]
sys.setswitchinterval(1e-6)
for number in range(TYPES):
    inner = make(f"Inner{number}", [(name, int) for name in NAMES])
    outer = make(f"Outer{number}", [("inner", inner)])
    together, found = threading.Barrier(THREADS), []

    def run():
        together.wait()
        found.append(decode(TEXT, outer))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == THREADS
"""


@pytest.mark.parametrize("kind", ["dataclass", "struct"])
def test_first_reads_of_a_class_by_several_threads_succeed(kind):
    with start(["-c", FIRST_READS, kind], stderr=subprocess.PIPE) as process:
        _, printed = process.communicate(timeout=PATIENCE)

    assert (process.returncode, printed) == (0, b"")


@pytest.mark.parametrize("kind", [Any, int, list[int], Annotated[int, []], "no type", msgspec.Struct, object, 7])
def test_type_that_cannot_be_described_is_left_to_the_reading(kind):
    describe_type(kind)
    describe_type(kind)

    assert decode("7", int) == 7
