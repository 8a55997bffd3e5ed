"""The log of what people did by hand."""
