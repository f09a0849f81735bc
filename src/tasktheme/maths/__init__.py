"""Dirichlet, Gaussian and continuous Bernoulli closed forms: pure, batched, no input or output."""
