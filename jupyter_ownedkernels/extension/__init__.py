"""The server extension: what happens when a Jupyter server links, loads and starts it."""
