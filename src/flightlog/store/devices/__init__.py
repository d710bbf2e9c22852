"""Files of device-memory telemetry: JSON, JSON Lines and sink folders, read with tolerance and written in
segments.
"""
