"""The dataclasses of the settings, a file for each group of `conf/`; `seq2seq.config` makes one tree of them."""
