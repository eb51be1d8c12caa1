"""The ids that mean something to everybody; knows no pieces."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_IDS = (PAD, UNK, BOS, EOS)
