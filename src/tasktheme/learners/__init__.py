"""Meta-learners: networks that learn to learn a task from a few labelled points, one file each, batched over tasks."""
