"""The schedules of an app on a cluster: their rules, their activity, their declaration and their calls."""
