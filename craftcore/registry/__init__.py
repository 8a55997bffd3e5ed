"""What user code declares: workflows, actions and the router."""
