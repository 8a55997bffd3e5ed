"""`python -m craftcore` is the command `craftcore`."""

from __future__ import annotations

import sys

from craftcore.cli.main import main

sys.exit(main())
