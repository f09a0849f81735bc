"""The online loop, its checkpoints and what follows it: the number of themes, final EM sweeps."""
