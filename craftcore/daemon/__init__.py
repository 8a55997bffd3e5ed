"""The process: its lock, signals, log, metrics and service manager."""
