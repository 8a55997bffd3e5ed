"""How it moves: feeder, heap, start, router, runner, settle."""
