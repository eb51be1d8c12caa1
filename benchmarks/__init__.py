"""Measurements against Hugging Face `transformers` on the same machine, data and batches; needs the extra `bench`."""
