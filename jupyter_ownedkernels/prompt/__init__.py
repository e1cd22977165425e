"""Classes of the server without the pauses that nobody needs."""
