"""Actions that are ready to use: programs, HTTP, email, language models."""
