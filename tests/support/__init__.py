"""What tests share: real processes, and a look at them that owes nothing to the package."""
