"""Encoders and decoders."""
