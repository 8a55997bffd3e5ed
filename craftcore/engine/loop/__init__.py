"""Guards of the event loop that the engine shares: Ctrl-C, code that blocks it, and code that ends it."""
