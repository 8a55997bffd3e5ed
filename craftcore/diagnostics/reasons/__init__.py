"""Why something does not run: a reason each, with the query that proves it."""
