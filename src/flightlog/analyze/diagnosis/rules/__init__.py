"""One class of failure a file, each with its signs as those who run such systems know them, and what to
do.
"""
