"""One module for each page: what it reads, and what its template shows."""
