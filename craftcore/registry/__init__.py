"""The declarations of user code: workflows, actions and the router."""
