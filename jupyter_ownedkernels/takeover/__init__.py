"""Defaults of the server that this package offers to fill, and when it steps aside."""
