"""The operator actions of the page: one table over `craftcore.operations`."""
