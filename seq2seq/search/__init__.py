"""Logits to sequences: search over a step function. Knows no model."""
