"""The commands `status` and `doctor`."""
