"""What a task becomes."""
