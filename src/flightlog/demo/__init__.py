"""A small real job to record: a stochastic SIR epidemic sweep."""
