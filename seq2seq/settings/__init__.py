"""All settings: a dataclass for each group of `conf/`, their tree, and the composition, where Hydra ends."""
