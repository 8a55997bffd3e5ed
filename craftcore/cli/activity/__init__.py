"""Commands about irreversible actions."""
