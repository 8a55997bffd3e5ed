"""Alias of `craftcore.testing.power_loss_disk`, kept for programs that import this name."""

from craftcore.testing.power_loss_disk import ForgetfulDisk

__all__ = ["ForgetfulDisk"]
