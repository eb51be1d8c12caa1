"""Show a model's attention as numbers, as pictures and step by step."""
