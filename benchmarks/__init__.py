"""Benchmarks, mostly against Hugging Face `transformers` on the same machine and data; they need the extra `bench`."""
