"""Write the golden documents of the public surface: `python -m tests.surface`."""

from __future__ import annotations

from tests.surface.collect import DOCUMENTS, GOLDEN

GOLDEN.mkdir(exist_ok=True)
for name, collect in DOCUMENTS.items():
    (GOLDEN / name).write_text(collect())
    print(GOLDEN / name)
