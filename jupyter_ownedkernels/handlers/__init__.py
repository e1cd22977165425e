"""The REST API under ``/api/ownedkernels``."""
