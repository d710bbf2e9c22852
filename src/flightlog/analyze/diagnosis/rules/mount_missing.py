"""A file system, a volume or a folder bound into a container is not there, or went away."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, errno, named, reports, says

rule = Clues(
    errno("ESTALE", 5.5),
    errno("ENOTCONN", 4, unless=r"socket|peer|shutdown\(|getpeername|recv|send|sock\b"),
    errno("ESHUTDOWN", 5),
    errno("EHOSTDOWN", 3),
    errno("ENODEV", 2.5),
    errno("EIO", 1.5, unless="MPI|OFI|libfabric|UCX|ibv_"),
    reports(
        5.5,
        r"MountVolume\.\w+ failed|\bFailedMount\b|FailedAttachVolume|AttachVolume\.\w+ failed",
        r"Unable to attach or mount volumes|VolumeMount|persistentvolumeclaim \"?[^\"]*\"? not found",
        "unbound immediate PersistentVolumeClaims|hostPath type check failed|Multi-Attach error",
        r"CSI driver|csi\.\w+",
    ),
    says(
        5.5,
        r"\b(?:bind|mount)(?:ing)? (?:source|mount|point|path|target|destination"
        "|dir(?:ectory)?)?.{0,120}(?:does(?:n't| not) exist|not found|no such|failed|is missing"
        "|unable|refused|cannot|not a directory|not available)",
        "invalid mount config|bind source path does not exist",
        "(?:unable|failed|cannot|could not|couldn't) to (?:bind|mount|remount|bind[- ]mount"
        "|chdir to cwd|automount)",
        r"mount\(?\)? (?:of .{0,120})?(?:failed|error)|error mounting|(?:error )?while mounting",
        "(?:can't|cannot|could not) (?:be )?mount|mount error|mount failed|failed to (?:be )?mount",
        unless=r"address|\bport\b|socket|\bbind to\b",
    ),
    reports(
        4.5,
        r"\bmount(?:\.\w+)?: |\bumount: |error mounting|\bfuse(?:rmount)?\d?: |sshfs",
        r"\b(?:s3fs|gcsfuse|goofys|mountpoint-s3|blobfuse)\w*:",
        unless="libfuse|WARNING: (?:underlay|Skipping mount /etc/localtime)",
    ),
    says(
        5,
        r"\b(?:is|are|was|has|have)(?: been| currently)? (?:not|un)[ -]?(?:been )?mounted",
        "not (?:a )?mount ?point|no (?:file ?system|volume|share|drive) (?:is )?mounted",
        "mount ?point .{0,60}(?:does not exist|missing|empty|not found|is not)",
        "file ?system (?:is |was )?(?:not mounted|unmounted|unavailable|not available|offline"
        "|not accessible|gone)",
        "(?:volume|share|drive) .{0,60}(?:not (?:found|mounted|available)|missing|unavailable"
        "|does not exist)",
        "(?:nfs|lustre|gpfs|beegfs|cephfs|ceph|smb|cifs|glusterfs"
        r"|bee ?gfs)\b.{0,80}(?:not responding|unavailable|evicted|timed out|stale|not mounted"
        "|failed|unmounted|disconnected|gone|error)",
        "wrong fs type|bad superblock|special device .{0,60}does not exist|unknown filesystem type",
        "stale (?:nfs )?file handle",
        r"creat(?:e|ing) mount source|lustreerror|(?:client|we) (?:was|were) evicted",
    ),
    says(
        4.5,
        r"no such file or directory.{0,120}\bmount|\bmount\b.{0,160}no such file or directory",
        r"to mount list|mounting .{0,120}: (?:no such|permission|invalid)",
    ),
    says(
        3.5,
        "failed to resolve (?:session|image) (?:directory|path)",
        "is the (?:volume|file system|share|drive|disk) mounted",
        "check (?:that )?(?:the )?(?:mount|volume)",
    ),
    named(4, "Mount"),
    reports(4, r"mount\w*\(\).{0,200}(?:doesn't exist|does not exist|[Ff]ail|[Cc]ould not|[Uu]nable)"),
    suggest=[
        "See what the host that ran it has mounted: `findmnt`, `df -h PATH`; compare it with a host where "
        "it works.",
        "In a container, bind the folder (`--bind /data`, `-v /data:/data`, a volume in the pod) and see "
        "that it exists on the host.",
        "A stale handle or a file system that went away is for the operators; start again on another node.",
    ],
)
