"""Device memory: the event as it stands in a run and in files, its rules, older and newer forms, its
sessions.
"""

from flightlog.events.devices.event import DeviceMemory

__all__ = ["DeviceMemory"]
