"""Other models: ablations, recorded attention, recurrent networks."""
