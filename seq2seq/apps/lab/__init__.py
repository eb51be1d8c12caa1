"""The ablation lab: the value of each part of attention, from finished runs, without training."""
