"""Bundles for other programs: CTranslate2 and Hugging Face transformers."""
