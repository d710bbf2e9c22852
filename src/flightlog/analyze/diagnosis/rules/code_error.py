"""The program itself is wrong: a name, a type, a shape, an index, or memory it may not touch."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, ended, named, raised, recorded, reports, says

_SHAPE = (
    r"shapes?\b|dimension|broadcast|size mismatch|must match|size of tensor|dtype|ndim|same device"
    r"|out of range|unpack|ambiguous|inplace|in-place"
    r"|positional|backward through the graph|does not require grad|leaf variable|index|not callable"
    r"|unhashable|not iterable|\baxis|sequence argument|must have length|length equal|same length"
    r"|Expected object of|scalar|__init__|has no (?:attribute|field|member)"
)


def _suggest(case: Case) -> list[str]:
    root = case.reading.root
    said = []
    if root is not None and root.files:
        inside = next(
            (
                n
                for n in range(len(root.files) - 1, -1, -1)
                if "site-packages" not in root.files[n] and not root.files[n].startswith("<")
            ),
            -1,
        )
        where, code = root.files[inside], root.code[inside] if root.code else ""
        said.append(f"Look at `{where}`, in `{root.functions[inside]}`" + (f": `{code}`." if code else "."))
    return [
        *said,
        "Run that call alone, in one process, with the arguments of the failed task.",
        "If it worked before: compare with the last good run (`flightlog compare`), code and packages alike.",
    ]


def _aborted(case: Case) -> Iterator[Sign]:
    """A program that ended itself; after an uncaught C++ exception that is how any of them ends, and no
    sign.
    """
    if "terminate called after throwing" not in case.reading.text:
        yield from ended("SIGABRT", weight=0.95)(case)


def _crashed(facts: RunFacts) -> Iterator[Sign]:
    if how := facts.crashed_in:
        text = f"its process crashed by itself: {facts.signal}, {how}"
        yield Sign(source=Source.exit, weight=3.0, text=text)


rule = Clues(
    raised(
        3.5,
        "NameError UnboundLocalError SyntaxError IndentationError TabError TypeError AttributeError",
        "NotImplementedError RecursionError ReferenceError NullPointerException ClassCastException",
        "IndexOutOfBoundsException ArrayIndexOutOfBoundsException StringIndexOutOfBoundsException",
        "NegativeArraySizeException StackOverflowError ConcurrentModificationException UndefVarError",
        "MethodError BoundsError DimensionMismatch NoMethodError ReferenceError IllegalStateException",
        "std::out_of_range std::logic_error std::length_error UnsupportedOperationException",
        "DeprecatedError ConcretizationTypeError TracerBoolConversionError TracerArrayConversionError",
        "UnexpectedTracerError NonConcreteBooleanIndexError TracerIntegerConversionError TypingError",
        "InvalidArgumentError StackOverflowException AxisError DTypePromotionError StackOverflow",
        "AmbiguousOverloadError UFuncTypeError UFuncNoLoopError _UFuncNoLoopError InvalidIndexError",
        "InvalidOperationError InvalidCastException NullReferenceException IndexOutOfRangeException",
        "ArgumentOutOfRangeException ArgumentNullException MissingMethodException",
    ),
    raised(
        2.5,
        "InvalidOperationException ArgumentException KeyNotFoundException FormatException",
        "UnicodeEncodeError",
    ),
    raised(
        3.5,
        "BinderException CatalogException ProgrammingError SQLSyntaxErrorException UndefinedColumn",
        "UndefinedTable NoSuchColumnError AnalysisException",
        unless="path does not exist|PATH_NOT_FOUND",
    ),
    says(
        3.5,
        "no such column|has no column named|(?:column|relation|table) .{0,80}(?:not found in FROM"
        "|does not exist$)",
        "SQL syntax|unknown column",
        r"must (?:have|be|be of) (?:the )?same (?:\w+ )?(?:dim|shape|size|length|dtype|type|rank|number"
        r"|communicator)",
        "(?:above upper|below lower) bound|outside of (?:the )?(?:array )?bounds"
        "|Fortran runtime error: (?:Attempt|Array|Substring|Incorrect extent|Allocatable)"
        "|already allocated|not (?:currently )?allocated",
        "argument is of length zero|missing value where TRUE/FALSE needed"
        "|replacement has \\d+ row|incorrect number of dimensions|undefined columns selected"
        "|arguments imply differing number of rows|subscript out of bounds",
        r"Fortran runtime error: (?:Missing comma|Format present|Array bound|Expected \w+ for item"
        "|Dimension|Recursive)",
        "cannot be coerced to|non-function|could not be coerced",
        "undefined (?:function|variable|symbol .{0,20}in procedure)|unrecognized (?:function|variable)",
        "index exceeds|dimensions (?:must agree|are not consistent)|cannot read propert|is not a function",
        r"changed size during iteration|generator raised StopIteration|event loop is (?:already running"
        r"|closed)|no running event loop|cannot schedule new futures|range_check",
        "no applicable method for",
    ),
    raised(
        3,
        "IndexError AssertionError StopIteration InvalidStateError BufferError SystemError",
        "IllegalArgumentException UnsupportedOperation LookupError",
        "KeyError",
    ),
    raised(3.2, "ZeroDivisionError"),
    raised(3.5, "ValueError RuntimeError Exception InvalidArgumentError error", saying=_SHAPE),
    says(
        3,
        r"NetCDF: (?:NC_UNLIMITED|Operation not allowed in|String match to name in use|Name contains illegal"
        r"|Index exceeds dimension|Start\+count exceeds|Variable has no data|Not a valid data type)",
        r"please submit a (?:full )?bug report|internal compiler error|^stack dump\b",
        r"can(?:'t|not) infer the (?:SQL )?type|could not determine (?:the )?(?:data )?type of",
        r"\b(?:role|database|schema|function) (?:''|\S{1,80}) does not exist\b",
    ),
    reports(
        3.5,
        r"\berror\[E\d{4}\]|symbol\(s\) not found for architecture",
        r"MPI_ERR_(?:TRUNCATE|RANK|TAG|COMM|TYPE|COUNT|BUFFER|REQUEST|ARG|GROUP|OP|ROOT|WIN)\b",
        r"Fatal error in P?MPI_\w+: (?:Message truncated|Invalid \w+)",
        source=Source.exception,
    ),
    raised(
        2, "ValueError RuntimeError Exception InvalidArgumentError", saying="expected .{0,60}(?:got|found)"
    ),
    raised(0.95, "ValueError"),
    raised(0.8, "RuntimeError Exception std::runtime_error SystemExit OSError"),
    says(
        3.5,
        "shapes? .{0,60}(?:cannot be multiplied|not aligned|mismatch|incompatible|do not match)",
        "could not (?:be )?broadcast|operands could not be|size mismatch",
        "dimension(?:s)? (?:mismatch|must|out of range|do not match)",
        "must match the (?:existing )?size|index .{0,40}out of (?:range|bounds)",
        "subscript out of (?:bounds|range)",
        "(?:array|list|string|tuple|vector|pop) index out of (?:range|bounds)|non-conformable",
        "expected .{0,60}same device|not enough values to unpack|too many values to unpack",
        r"has no (?:attribute|member|field)|is not defined\b|is not callable",
        r"object of type .{0,40} is not|unexpected keyword argument|missing \d+ required positional",
        r"takes \d+ positional|maximum recursion depth|stack overflow",
        "trying to backward through the graph|modified by an inplace",
        unless="namelist",
    ),
    says(
        3.5,
        r"\berror: (?:\S+ ){0,2}(?:expected|unexpected|undeclared|invalid syntax)\b|near unexpected token",
        "undefined reference to|was not declared in this scope|undeclared identifier",
        r"implicit declaration|no matching function|multiple definition of|ld returned \d|syntax error",
        "invalid syntax|compilation (?:failed|failure|error|terminated)|cannot find symbol"
        "|incompatible types:",
        r"could not compile\b|failed to compile\b|rustc --explain|\b(?:resolve|no) service for type\b"
        r"|no qualifying bean",
        "unexpected (?:symbol|end of input|string constant)|could not find function",
        "object .{0,80}not found$|no method (?:matching|found)|non-numeric argument",
        "argument .{0,40}is missing, with no default|unused argument",
        "cannot open the connection to itself|template argument|redefinition of",
        "(?<![A-Za-z])error: (?:no (?:member|match|viable|type)|expected|use of|cannot convert"
        r"|invalid use|conflicting|unknown type)\b",
        unless=r"config|yaml|command line|--\w|json",
    ),
    says(
        3,
        "assert(?:ion)? .{0,120}failed|assertion (?:failed|error|failure)|nil pointer",
        "invalid memory address|null pointer|segmentation violation|double free",
        r"\b(?:Address|Thread|UndefinedBehavior|Leak)Sanitizer\b|invalid (?:read|write) of size \d",
        r"free\(\): invalid|corrupted (?:size|double-linked|unsorted)|heap corruption|munmap_chunk",
        "stack smashing|buffer overflow|invalid pointer|access violation|invalid memory reference",
        "use[- ]after[- ]free|address not mapped|pure virtual method|unaligned tcache",
        "malloc_consolidate|memory corruption|deadlock!",
        unless="cuda|device-side",
    ),
    says(1.5, r"\bdeadlock\b|race condition|not implemented|internal (?:compiler )?error|bug in"),
    ended("SIGSEGV", weight=3),
    ended("SIGILL", "SIGBUS", weight=0.95),
    _aborted,
    named(
        2.5,
        "TypeMismatch|Index(?:Error|OutOf)|Attribute|Shape|Dimension|Assert|NotImplemented"
        "|NullPointer|Syntax|Undefined|Bounds|Recursion|Compil|IllegalState",
    ),
    says(1.6, "Fortran runtime error", unless="file|end of|bad |record|memory"),
    raised(2.2, "ArgumentError"),
    says(2.4, "panicked at"),
    says(
        2.4,
        r"\bPHP (?:Fatal|Parse) error\b",
        unless="memory|execution time|failed opening|permission|uncaught \\w*(?:pdo|mysqli|redis)",
    ),
    reports(
        3,
        r"PETSC ERROR: (?:Argument out of range|Wrong type of object|Object is in wrong state|Null argument"
        r"|Nonconforming|Corrupt argument)",
        source=Source.exception,
    ),
    recorded(_crashed),
    suggest=_suggest,
)
