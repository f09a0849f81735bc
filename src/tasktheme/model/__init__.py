"""The generative model and its inference: themes, E-step, M-step, bound."""
