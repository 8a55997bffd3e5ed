"""Live updates of open pages: what is watched, rendered once for all, and sent."""
