"""What REST and the command line show: plain data for JSON, nothing secret in it."""
