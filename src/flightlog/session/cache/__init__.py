"""`@cacheable`: results kept by code and arguments; the key, the stored entries and what a cache holds."""
