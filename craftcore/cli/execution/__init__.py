"""Commands about the records of attempts."""
