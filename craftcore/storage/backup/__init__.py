"""Backups, and restoring one."""
