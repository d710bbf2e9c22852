"""256-bit digests of values and code, equal in every process and on every host."""
