"""Device memory: the event in a run and in files, its checks, older and newer forms, and its sessions."""

from flightlog.events.devices.event import DeviceMemory

__all__ = ["DeviceMemory"]
