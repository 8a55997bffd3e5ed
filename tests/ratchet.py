"""Compare the violations of a rule with a committed list of known ones, which may only shrink.

A violation that is not in the list fails, and so does an entry of the list that no longer occurs.
`python -m tests.ratchet` removes entries that no longer occur. `--accept` also adds new ones: after a rename, for
example, that gives an old violation another name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

ALLOWED = Path(__file__).parent / "allowed"

RULES = {
    "edges": "tests.test_layers",
    "circles": "tests.test_layers",
    "sql": "tests.test_layers",
    "sizes": "tests.test_layers",
    "modules": "tests.test_names",
    "identifiers": "tests.test_names",
    "docstrings": "tests.test_prose",
    "messages": "tests.test_prose",
    "pages": "tests.test_prose",
}
"""The name of a list, and the module whose function of that name finds the violations of today."""


def check(rule: str, found: Iterable[str]) -> None:
    """Fail unless the violations are exactly the allowed ones."""
    now, allowed = set(found), set(allowed_of(rule))
    assert not now - allowed, f"new violations of {rule}:\n" + "\n".join(sorted(now - allowed)[:20])
    assert not allowed - now, (
        f"{len(allowed - now)} entries of tests/allowed/{rule}.txt no longer occur: run python -m tests.ratchet"
    )


def allowed_of(rule: str) -> list[str]:
    """Return the known violations. A rule without a list allows none."""
    path = ALLOWED / f"{rule}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def main(accept: bool) -> None:
    """Rewrite every list, and print how many entries it has."""
    for rule, module in RULES.items():
        now = set(getattr(import_module(module), rule)())
        kept = sorted(now if accept else now & set(allowed_of(rule)))
        path = ALLOWED / f"{rule}.txt"
        path.unlink(missing_ok=True)
        if kept:
            path.write_text("\n".join(kept) + "\n", encoding="utf-8")
        print(f"{rule:<12} {len(kept):>6}")


if __name__ == "__main__":
    main(accept="--accept" in sys.argv[1:])
