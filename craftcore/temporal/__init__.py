"""The same app on a Temporal cluster: one workflow for each task, one activity for each entry of a turn."""
