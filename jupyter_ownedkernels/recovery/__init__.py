"""Ends what proven-dead owners left, at an owner's start."""
