"""Logits to sequences."""
