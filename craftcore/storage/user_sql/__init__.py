"""SQL of user code within a transaction of the engine."""
