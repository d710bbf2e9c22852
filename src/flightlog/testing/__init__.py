"""A test kit for extensions: contracts that every engine passes."""
