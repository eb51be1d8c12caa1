"""Export bundles to CTranslate2 and Hugging Face transformers, and import Marian models."""
