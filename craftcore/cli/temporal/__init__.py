"""`craftcore temporal`: commands on a Temporal cluster. Only these load its library, and only when they run."""
