"""The table of marked tests that a change can break, by folder of the package."""

from __future__ import annotations

import pytest

from tests.touched import ROOT, TOUCHED, touched_tests


def test_table_has_the_folders_of_the_package():
    folders = {f"craftcore/{path.name}" for path in (ROOT / "craftcore").iterdir() if (path / "__init__.py").exists()}
    assert folders - TOUCHED.keys() == set()
    assert {folder for folder in TOUCHED if not (ROOT / folder).is_dir()} == set()
    assert {test for tests in TOUCHED.values() for test in tests if not (ROOT / test).exists()} == set()


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ([], []),
        (["README.md", "tests/nouns.txt", ".gitignore"], []),
        (["craftcore/retention/service.py"], ["tests/retention", "tests/simulation"]),
        (["tests/web/test_inbox_page.py", "tests/test_wheel.py"], ["tests/test_wheel.py", "tests/web"]),
        (["tests/web/test_that_was_deleted.py", "tests/test_that_was_deleted.py"], ["tests/web"]),
        (["craftcore/app.py"], ["tests"]),
        (["craftcore/web/site.py", "requirements.lock"], ["tests"]),
        (["tests/conftest.py"], ["tests"]),
        (["tests/support/processes.py"], ["tests"]),
        (["migrations/0001_first.sql"], ["tests"]),
    ],
)
def test_change_touches_the_tests_of_its_folders(changed, touched):
    assert touched_tests(changed) == touched
