"""Document files: what is text in them is translated, everything else stays as it is."""
