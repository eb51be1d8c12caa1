"""Batches to weights: loss, schedule, Lightning module, callbacks, a whole run."""
