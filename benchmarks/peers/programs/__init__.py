"""One small program per system. Each runs in the environment of its system and prints one line of JSON."""
