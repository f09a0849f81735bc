"""Images or features in, episodes out."""
