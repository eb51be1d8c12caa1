"""A small bilingual grammar that writes the bundled English–Spanish corpus; knows nothing of models or tokenizers."""
