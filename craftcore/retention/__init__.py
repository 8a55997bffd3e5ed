"""What is kept, for how long, and how the rest goes: in small batches, children before parents."""
