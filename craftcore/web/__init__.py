"""The page of `craftcore web`: a process of its own over the same file, for people."""
