"""The class of mutants: a small change of the code that breaks a promise, and the tests that must detect it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement in one file of `craftcore/`. `old` occurs there exactly once."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change the file. Raises ValueError if `old` does not occur exactly once."""
        path = root / "craftcore" / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times: {self.old.strip()[:80]}")
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A named variant. `breaks`: the promise that it breaks; `tests`: the pytest arguments of its tests."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def mutant(name: str, breaks: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant of a single edit."""
    return Mutant(name, breaks, (Edit(file, old, new),), tests)
