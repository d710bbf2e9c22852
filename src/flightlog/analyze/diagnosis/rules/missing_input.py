"""A file, an object or a data set that the program reads is not where it looks."""

from __future__ import annotations

import re

from flightlog.analyze.diagnosis.base import Case
from flightlog.analyze.diagnosis.matchers import Clues, errno, named, raised, reports, says, status

_PATH = re.compile(r"['\"]((?:[\w.-]+:/)?/?[^'\"\n]{0,300}[/.][^'\"\n]{1,300})['\"]")
_MOUNT = r"mount|bind|volume|stale file handle|in container|required by"
_LOADED = (
    r"shared object|shared librar|fatal error: .{0,120}: No such file|dlopen"
    r"|^<path>: '[\w.+-]{0,40}': No such"
)
"""What is missing is a part of the program: a library, a header, or the interpreter that `env` was to
start."""

_OTHERWISE = (
    r"too many open|format error|not supported|read-only|input/output error|resource temporarily"
    r"|is a directory|busy$"
)
"""Why a file that is there could not be opened."""


def _suggest(case: Case) -> list[str]:
    root = case.reading.root
    found = _PATH.search(root.message if root is not None else case.reading.text)
    said = (
        [f"See whether it is there, from where the task runs: `ls -l '{found[1]}'`."]
        if found and "://" not in found[1]
        else []
    )
    return [
        *said,
        "Relative names are looked up in the folder the worker runs in: give whole paths.",
        "If an earlier step makes it, see that this step succeeded and that the file system is shared.",
    ]


rule = Clues(
    raised(
        5,
        "FileNotFoundError NotADirectoryError FileNotFoundException NoSuchFileException NoSuchKey",
        "NoSuchBucket ResourceNotFoundError EntryNotFoundError RevisionNotFoundError",
        "LocalEntryNotFoundError MissingInputException BlobNotFound DatasetNotFoundError",
        "RepositoryNotFoundError GroupNotFoundError PathNotFoundError ArrayNotFoundError",
        "FileDoesNotExist InvalidInputException DataFilesNotFoundError NoSuchFileError CannotOpenFile",
        unless=_MOUNT,
    ),
    raised(3, "FileNotFoundError", saying=_MOUNT),
    errno("ENOENT", 4, unless=rf"{_MOUNT}|{_LOADED}|execv|exec:|interpreter|cannot find -l"),
    errno("ENOTDIR", 2.5, unless=_MOUNT),
    errno("EISDIR", 2),
    says(
        3.5,
        r"(?<!<)\b(?:files?|path|object|key|directory|folder|dataset|data set|blob|inputs?"
        r"|checkpoint|bucket|table|archive|image|tileset|model)\b.{0,80}\b(?:not found"
        "|does not exist|doesn't exist|could not be found|cannot be found|were not found"
        "|do(?:es)? not exist|is missing|missing|was not provided|(?:was|were|is) empty)",
        r"<(?:path|url)>['\"]?(?: (?:is|was|were|are|has|could|can|does"
        r"|do))?:? ?(?:be )?(?:not (?:be )?(?:found|exist)|missing|cannot be found)",
        unless=(
            rf"{_MOUNT}|module|command|package|class|symbol|attribute|column|partition|account|shared"
            r"|librar|credential|device|plugin|key not found: |Error in|object '' not"
        ),
    ),
    says(
        3.5,
        r"\b(?:missing|no such|cannot find|can't find|couldn't find|could not find|unable to find"
        "|unable to locate|cannot locate|not find|fail(?:ed|s)? to (?:find|locate)) (?:the |any |input "
        "|a |required "
        "|specified |index )*(?:files?|path|input|inputs|object|key|bucket|dataset|data|checkpoint"
        r"|directory|folder)\b",
        unless=rf"{_MOUNT}|{_LOADED}|module|credential|validation|metadata|annotation",
    ),
    says(
        3,
        r"\bcannot (?:open|access|stat|read) .{0,120}No such file|can't open file",
        "(?:unable to|cannot|can't|could not|couldn't|failed to|failure to|error) (?:synchronously )?"
        r"(?:open(?:ing)?|access(?:ing)?|locat(?:e|ing)) (?:[\w-]+ ){0,3}(?:[\w-]*files?|jarfile)\b",
        unless=rf"{_LOADED}|permission|signature|truncated|denied|errno = (?!2\b)|lock|{_OTHERWISE}",
    ),
    says(
        5,
        r"\bNoSuchKey\b|\bNoSuchBucket\b|The specified (?:key|bucket|blob|container) does not exist",
        "No URLs matched|Path does not exist|file not found, unit|Error opening .{0,60}: No such",
        unless=_MOUNT,
    ),
    says(
        3,
        "no (?:files|data|input files|matching files|objects) (?:were )?(?:found|match)",
        "No rule to make target|found no files|no input files|match(?:es|ed)? (?:no|any) file(?:s\\b"
        "|\\(s\\))|paths were empty",
        "unable to locate (?:the )?(?:initial|boundary|restart|forcing|input|reference|training|test)",
        r"\bmissing (?:required )?\w{0,20}:? <path>",
    ),
    says(
        3.5,
        "manifest (?:for .{0,120} )?(?:unknown|not found)|repository does not exist|code = NotFound",
        r"\b(?:files?|inputs?|reads|reference|alignments?)\b.{0,40}\b(?:is|are|was|were) not indexed\b",
        r"(?:could not|cannot|can't|unable to|fail(?:ed)? to) (?:retrieve|load|find|open"
        r"|locate) (?:the )?index\b",
    ),
    status(404, 410, weight=3.5),
    named(
        3,
        "NotFound|DoesNotExist|NoSuch|Missing(?:File|Input|Data)",
        unless=(
            "Module|Package|Command|Class|Device|Plugin|Librar|Dependenc|Distribution|Config"
            "|Credential|Token|Method|Column|Mount|mount"
        ),
    ),
    reports(4.5, "NO_SUCH_KEY|NO_SUCH_BUCKET|NO_SUCH_UPLOAD|RESOURCE_NOT_FOUND|PATH_NOT_FOUND"),
    says(4, r"does not appear to have a file named|missing (?:input|output) files?\(?s?\)?"),
    says(
        2.5,
        "(?:can't|cannot|could not|unable to) load (?:the )?(?:tokenizer|model|weights|checkpoint"
        r"|configuration|image|dataset|file)\b",
    ),
    reports(3, r"\(NotFound\)|\(404\) when calling"),
    says(3, r"\bno (?:[\w-]+ ){0,4}files? (?:was |were )?found\b", unless=_MOUNT),
    suggest=_suggest,
)
