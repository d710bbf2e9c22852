"""A disk, a quota or a limit on files had no more room."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, ended, errno, named, raised, reports, says

rule = Clues(
    errno("ENOSPC", 6),
    errno("EDQUOT", 6),
    errno("EFBIG", 4),
    raised(
        6,
        "DiskFullError OutOfDiskError DiskQuotaExceeded DiskFull NoSpaceLeft OutOfDiskSpaceError",
        "DiskFullException NotEnoughDiskSpaceError InsufficientDiskSpace",
    ),
    says(
        5,
        "no space left|no space on (?:the )?(?:device|disk)|out of (?:disk|storage)(?: space)?",
        "(?:disk|file ?system|filesystem|volume|partition|storage|tmp|scratch|drive|<path>) (?:is |was "
        "|space is |space )?(?:full|exhausted)",
        "disk (?:usage|space) .{0,40}(?:exceed|full|exhaust|low)|database or disk is full",
        "not enough (?:free |disk |available |storage )*space",
        "insufficient (?:free |disk |storage |available )+(?:space)?",
        "(?:low|lack) (?:on|of) disk space|needs? .{0,30}more disk space|not enough (?:room|disk)",
        unless="shared memory|address space|heap space",
    ),
    says(
        4,
        "(?:disk|storage|inode|file|space|block|home|user|group|project)s? quota (?:was |is "
        "|has been )?(?:exceeded|reached|full)",
        "quota (?:was |is )?(?:exceeded|reached)|over (?:disk )?quota|exceed(?:ed|s)? (?:the "
        "|your )?(?:disk |storage |file |inode )?quota",
        "(?:storage|disk|space) limit (?:was |has been |is )?(?:reached|exceeded)|user block limit",
        "inode limit|no (?:free )?inodes",
        unless="requests|per minute|cpus|gpus|api|rate|tokens",
    ),
    reports(
        5,
        "low on resource: ephemeral-storage|exceeds the total limit of containers",
        "ephemeral local storage usage exceeds|ephemeral-storage|DiskPressure|imagefs|nodefs",
        r"over \d+(?:\.\d+)?% full",
    ),
    says(
        3.5,
        r"file size limit exceeded|file too large|write error: .{0,20}space",
        r"(?:short|partial|incomplete) write|\b(?:wrote only|only wrote) \d+|\d+ requested and \d+ written",
    ),
    ended("SIGXFSZ", weight=4.5),
    says(2, "No usable temporary directory"),
    named(3.5, "DiskFull|OutOfDisk|NoSpace|DiskQuota|DiskSpace|StorageFull"),
    says(2.5, "file write failed|failed writing file|write failed"),
    says(3, "table .{0,40} is full"),
    suggest=[
        "See what is full, as the task sees it: `df -h .`, `df -i .`, `quota -s` or `lfs quota -h -u $USER "
        "PATH`; a container's `/tmp` is small.",
        "Send scratch files elsewhere (`TMPDIR`), write fewer checkpoints, and remove old runs.",
    ],
)
