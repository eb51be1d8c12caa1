"""An HTTP server that translates for many users at once, and its page."""
