"""Events and metrics."""
