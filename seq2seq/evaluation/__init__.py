"""Texts to scores: metrics, test sets, overlap. Knows no model."""
