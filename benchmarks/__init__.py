"""Benchmarks, mostly against Hugging Face `transformers` on the same machine; they need the extra `huggingface`."""
