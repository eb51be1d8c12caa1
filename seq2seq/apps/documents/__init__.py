"""Document files: their text is translated, everything else does not change."""
