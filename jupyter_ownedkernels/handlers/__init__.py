"""The REST API under ``/ownedkernels/api``."""
