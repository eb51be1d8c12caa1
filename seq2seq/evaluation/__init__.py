"""Texts to scores and faults: metrics, test sets, significance, analysis. Knows no model."""
