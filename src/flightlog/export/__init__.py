"""A run in another form: traces, metrics, tables and crates that other programs take."""
