"""The list of mutants and its runner: each mutant fits the code, and survivors are reported."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Edit, Mutant, mutant
from tests.mutants.runner import Unusable, require_green, run_one

QUICK = "tests/test_plurals.py::test_noun_agrees_with_its_number"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies_to_the_code_and_compiles(mutant: Mutant):
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (ROOT / "craftcore" / edit.file).read_text()
        assert text.count(edit.old) == 1, f"{edit.file}: {edit.old}"
        texts[edit.file] = text.replace(edit.old, edit.new)
    for file, text in texts.items():
        compile(text, file, "exec")
    for test in mutant.tests:
        assert (ROOT / test).exists(), test


def test_mutants_have_names_of_their_own():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 40


@pytest.mark.acceptance
def test_runner_tells_a_noticed_mutant_from_a_survivor():
    plural = (ROOT / "craftcore" / "serialization" / "plurals.py").read_text()
    [line] = [line for line in plural.splitlines() if "return " in line and " == 1" in line]
    noticed = mutant("wrong-plural", "a count has the right noun", "serialization/plurals.py", "== 1", "== 2", QUICK)
    survivor = Mutant("harmless", "nothing", (Edit("serialization/plurals.py", line, f"{line}  # ok"),), (QUICK,))

    require_green([noticed])
    outcome = run_one(noticed)
    assert outcome.noticed_by is not None
    assert outcome.noticed_by.startswith(QUICK)
    assert run_one(survivor).noticed_by is None


def test_mutant_that_proves_nothing_is_refused():
    gone = mutant("gone", "nothing", "serialization/plurals.py", "no such text", "", QUICK)
    with pytest.raises(Unusable, match="has 0 times: no such text"):
        run_one(gone)
    text = "from __future__ import annotations"
    unimportable = mutant("unimportable", "nothing", "serialization/plurals.py", text, "import nothing_at_all", QUICK)
    with pytest.raises(Unusable, match="pytest exits with"):
        run_one(unimportable)
