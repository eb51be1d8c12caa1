"""Files: lines, complete or absent, locks, the cache."""
