"""Spawners and launches: how a request becomes a watched kernel that accepts connections."""
