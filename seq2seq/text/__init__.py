"""Strings to batches: corpora, cleaning, tokenizer, token-budget batches. Knows no model."""
