"""Finds stray kernels, left processes and stale files; cleans with proof of identity only."""
