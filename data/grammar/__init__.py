"""A small bilingual grammar that writes the bundled English–Spanish corpus; knows nothing of models or tokenizers.

Read in this order: agreement (person, number, tense), english, conjugation and spanish (word forms), lexicon and
reading (lexicon.yaml), phrases and clauses (both languages at once), draw and circumstances (luck that makes sense),
patterns (kinds of sentences), pair, corpus (splits and files).
"""
