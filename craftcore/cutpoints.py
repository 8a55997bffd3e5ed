"""Alias of `craftcore.failpoints`, kept for programs that import this name."""

from craftcore.failpoints import Failpoint as CutPoint
from craftcore.failpoints import arm, kill_process
from craftcore.failpoints import hit as reach

__all__ = ["CutPoint", "arm", "kill_process", "reach"]
