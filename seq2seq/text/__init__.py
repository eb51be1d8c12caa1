"""From strings to batches: corpora, cleaning, tokenizer, token-budget batches. Independent of the model."""
