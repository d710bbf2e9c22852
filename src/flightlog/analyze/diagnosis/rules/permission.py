"""The file system or the kernel does not let this user do it."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, ended, errno, named, raised, says

REMOTE = (
    r"s3://|gs://|gcs|abfss?://|wasbs?://|\bs3\b|amazonaws|\bbucket|blob\.core|AccessDenied(?!Exception)"
    r"|HeadObject|GetObject|PutObject|ListObjects|storage\.googleapis"
    r"|publickey|keyboard-interactive|gssapi|\btoken\b|\bAPI\b|credential|\b40[13]\b|Forbidden|Unauthorized"
    r"|password|huggingface|docker\.io|ghcr\.io|quay\.io|pull access"
)
"""Marks of a service that asks who one is, rather than of a file system that looks at an owner and a mode."""

rule = Clues(
    raised(5, "PermissionError AccessDeniedException AccessControlException PermissionDenied", unless=REMOTE),
    raised(1.5, "PermissionError PermissionDenied", saying=REMOTE),
    errno("EACCES", 4.5, unless=REMOTE),
    errno("EPERM", 4.5, unless=REMOTE),
    errno("EROFS", 4),
    says(4, r"\bpermission denied\b", unless=REMOTE),
    says(
        3.5,
        r"\b(?:operation|action) (?:is )?not permitted|not permitted to",
        "insufficient (?:privileges|permissions?|rights)",
        "(?:you )?(?:do not|don't|does not) have (?:the )?(?:necessary |required |sufficient "
        "|write |read |execute )*permissions?",
        "(?:is )?not writ(?:e)?able|access (?:is )?denied|cannot write to|must be (?:run as )?root",
        "requires root|are you root|read-only file ?system|requires? (?:superuser|elevated)",
        r"(?:no|not have|without) (?:write|read|execute) (?:access|permissions?)\b",
        unless=REMOTE,
    ),
    says(
        4.5,
        "Permission denied: user=|EACCES|dubious ownership|unprivileged user namespace",
        "user namespaces? (?:is|are)? ?(?:not|disabled)",
        unless="publickey",
    ),
    ended(126, weight=2),
    named(3, "Permission|Privilege|AccessDenied", unless=REMOTE),
    says(3, "no mapping entry found|subuid|newuidmap"),
    says(3.5, "sudo: |(?:readonly|read-only) database|not in the sudoers"),
    says(
        2.4,
        r"(?:cannot|could not|can't|unable to|failed to) (?:make|create) (?:the "
        r"|an? )?(?:\w+ ){0,2}(?:directory|folder)\b",
        unless=rf"{REMOTE}|no such|exists|space|quota|not found|memory|not a directory|mount",
    ),
    suggest=[
        "See who owns it and what is allowed, as the user and on the host of the task: `ls -ld PATH`, `id`.",
        "Write to a folder of your own (`$SCRATCH`, `$TMPDIR`), or have the owner give your group access.",
        "In a container, files belong to the user inside: mount them writable, or run with your own user id.",
    ],
)
