"""Limits of starts: those of workflows, and shortages of the machine."""
