"""`whole_file` and `whole_folder`, under the address that programs import them from."""

from flightlog.export.base import whole_file, whole_folder

__all__ = ["whole_file", "whole_folder"]
