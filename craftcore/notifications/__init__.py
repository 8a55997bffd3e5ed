"""Notifications: messages about questions, doubts, failures and missed occurrences, each sent by a trigger."""
