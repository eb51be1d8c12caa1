"""The older network: LSTMs and additive attention behind the Transformer's interface."""
