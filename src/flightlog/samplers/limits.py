"""Limits, waits and thresholds of `samplers/`, each in one place, with what it is for."""

from __future__ import annotations

from typing import Final


class SamplerLimits:
    """How much is read of the machine, and how often."""

    # cgroup.py
    cgroup_limits_interval_s: Final = 10.0
    """Limits of a control group are read again after this many seconds: they hardly ever change, and
    finding them means reading every ancestor."""

    # frameworks.py
    max_host_figures_age_s: Final = 1.0
    """How old the host's figures may be, in seconds: they take the kernel longer than this process's own."""
    unused_devices_interval: Final = 10
    """Devices that were not in use are read again in every sample of this many."""

    # gpu/
    driver_wakeup_wait_s: Final = 0.2
    """How long a sample waits for a driver that has to wake up; later samples find it awake."""
    costly_readings_interval_s: Final = 0.9
    """How often the costlier questions are put to a driver at most: a little less than a second."""
    rare_readings_interval_s: Final = 10.0
    """How often what hardly ever changes is read from a driver at most."""
    min_interval_for_gpu_history_s: Final = 0.5
    """Samples nearer to each other than this tell a GPU's utilization by the driver's last period, a fraction
    of a second: what it remembers of earlier ones takes 2 ms to read."""
    task_gpu_interval_s: Final = 0.1
    """How often the devices are read while a task runs."""
    min_interval_for_task_gpu_history_s: Final = 0.2
    """The same of readings while a task runs, which a driver that takes long to answer makes rare."""
    task_gpu_rest_factor: Final = 100
    """A driver that takes long to answer is read less often: never for more than one part in this many of
    the time."""
    min_duration_for_last_reading_s: Final = 0.05
    """Shorter tasks are not held up by a last reading from the driver."""
    min_duration_for_utilization_s: Final = 1.0
    """The driver's utilization covers up to a second: of shorter tasks it says nothing."""

    # process.py
    max_walked_threads: Final = 256
    """A tree with more threads costs more to walk, thread by thread, than listing all processes does."""
    max_sampled_workers: Final = 64
    """Worker processes of a tree that have a sample of their own each; of further ones there is none."""
    interpreter_probes: Final = 3
    """Sleeps by which one sample measures how long threads wait for the interpreter."""
    interpreter_probe_s: Final = 0.0005
    """Length of each of these sleeps."""
    min_switch_interval_s: Final = 0.002
    """The switch interval below which these sleeps tell nothing of threads that compute."""

    # procfs.py
    max_kernel_file_bytes: Final = 1 << 24
    """No text file of the kernel comes near this size; anything longer is not one, and is cut."""
    min_cpu_interval_s: Final = 0.05
    """A share of CPU time over less than this would be one tick more or less, and mean nothing."""

    # usage.py
    max_metered_threads: Final = 64
    """Threads whose accounts by the scheduler are kept open."""
    memory_reading_holds_s: Final = 0.01
    """How long a reading of memory holds where no page was touched since: what was freed shows then."""
    max_meters_searched: Final = 16
    """Running meters among which those that were cut off are searched for, and whose threads are sampled."""
