"""The ``jupyter ownedkernels`` command: parse, call, print."""
