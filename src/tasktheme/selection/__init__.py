"""Which task next: one file for each policy."""
