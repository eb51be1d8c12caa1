"""Token ids to logits: the encoder-decoder, written out. Knows no text and no search."""
