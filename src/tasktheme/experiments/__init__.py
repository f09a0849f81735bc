"""The paper's experiments, one file per figure: each returns its numbers; ``report`` draws them."""
