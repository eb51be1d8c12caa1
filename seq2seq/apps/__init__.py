"""What stands on the translator; the core never imports it."""
