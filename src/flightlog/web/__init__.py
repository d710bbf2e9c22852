"""The dashboard: a web server for a folder of runs."""
