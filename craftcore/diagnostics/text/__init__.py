"""The words in which people read rows: shared by the command line and the page. Pure."""
