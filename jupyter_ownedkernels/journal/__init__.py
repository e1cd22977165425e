"""What every owner has on record: one append-only file each, and how it is read."""
