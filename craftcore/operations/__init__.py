"""One function per change that an operator makes, for the command line, a web page and an MCP server alike."""
