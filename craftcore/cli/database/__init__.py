"""The commands `db` of the database file."""
