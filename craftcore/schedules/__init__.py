"""WHEN, AGAIN: schedules, and the occurrences they owe an account of."""
