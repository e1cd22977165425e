"""The warm spawner: a template of a kernel, forked when one is asked for."""
