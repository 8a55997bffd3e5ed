"""The moments of a schedule: expressions, cron, time zones."""
