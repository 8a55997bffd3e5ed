"""One function per change that an operator makes, for the command line and the page alike."""
