"""A chat model, and a router that asks it."""
