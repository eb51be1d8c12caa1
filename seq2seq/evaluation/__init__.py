"""Evaluation of translations: metrics, test sets, significance, faults. Independent of the model."""
