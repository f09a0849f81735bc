"""The online loop, its checkpoints and final EM sweeps."""
