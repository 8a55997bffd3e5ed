"""craftcore beside other systems: the same work, on the same disk, in interleaved rounds."""


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison. The import is late, because programs of other environments import this package too."""
    from benchmarks.peers.comparison import compare

    compare(arguments or [])
