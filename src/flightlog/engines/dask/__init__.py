"""Sessions on Dask, and watching what a Dask client does."""
