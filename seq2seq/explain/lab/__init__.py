"""The ablation lab: what each part of attention is worth, from finished runs; trains nothing."""
