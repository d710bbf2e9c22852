"""Runs as SQL tables: DuckDB views over lines and Parquet snapshots."""
