"""Speed, measured side by side with a plain reference in one run."""
