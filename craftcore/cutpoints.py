"""Alias of `craftcore.failpoints`, kept for programs that import this name."""

from craftcore.failpoints import CutPoint, arm, kill_process, reach

__all__ = ["CutPoint", "arm", "kill_process", "reach"]
