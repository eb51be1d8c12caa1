"""Strings to strings: the bundle, the engine, the translator."""
