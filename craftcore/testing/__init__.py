"""Disks that fail on purpose, for tests of craftcore and of its users."""
