"""What the memory allocators of machine-learning frameworks say of themselves.

Reading never imports a framework, never starts one up, never makes a device context and never waits for a
device.
"""
