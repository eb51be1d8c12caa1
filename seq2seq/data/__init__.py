"""Texts to batches."""
