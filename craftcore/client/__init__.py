"""The calls of programs on the work of an app: written once, over a file or a cluster, awaitable or blocking."""
