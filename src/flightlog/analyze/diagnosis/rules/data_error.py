"""The input is there, but not what the program can read: damaged, cut off, or of another form."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import Case, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, named, raised, says

_CONFIG = r"config|\.ya?ml|\.toml|\.ini|\.cfg|settings|hydra"
_SERVER = r"status code|<!DOCTYPE html|Max retries"

_PIPE = re.compile(
    r"\b(?:header|records?|input|data|read\w*)\b.{0,20}\bfrom [\"'`]?(?:-|stdin"
    r"|standard input)[\"'`]?(?=[\s.,:]|$)",
    re.M,
)


def _down_a_pipe(case: Case) -> Iterator[Sign]:
    """What comes down a pipe is cut off where the program before it failed: that one's words count."""
    if found := _PIPE.search(case.reading.text):
        yield Sign(source=Source.words, weight=-1.5, text=found[0])


rule = Clues(
    raised(
        4.5,
        "JSONDecodeError UnicodeDecodeError ParserError EmptyDataError BadZipFile BadZipfile",
        "BadGzipFile UnidentifiedImageError DecompressionBombError SafetensorError DataLossError",
        "OutOfBoundsDatetime ExpatError ParseError XMLSyntaxError InvalidFileException",
        "CorruptedFileError ReadError SchemaError SchemaErrors DecodeError MalformedInputException",
        "InvalidSchemaError InvalidDataError DataError ParseException BadDataError HeaderError",
        "CSVError ChecksumError IntegrityError DateParseError CastError ArrowInvalid LZMAError",
        "FormatError InvalidHeaderError UnsupportedOperationError DatasetGenerationError",
        "NonMatchingChecksumError NonMatchingSplitsSizesError ExpectedMoreDownloadedFilesError",
        "BadMagic CRSError MergeError DimensionMismatchError InvalidGeometryError",
        "TruncatedFileError ConversionException NumberFormatException zlib.error",
        "csv.Error binascii.Error NotAnHDF5File MetadataError DataSourceError WKBReadingError",
        "WKTReadingError Int64Overflow BadRecordException JsonParseException JSONParseError",
        "MalformedJsonException IllegalDataException JsonMappingException",
        unless=rf"yaml\.|{_CONFIG}",
    ),
    raised(2, "JSONDecodeError ParserError SchemaError ParseError", saying=_CONFIG),
    raised(
        3.5,
        "EOFError",
        saying="ran out of input|compressed file ended|end-of-stream|marker|read past|no data left",
    ),
    raised(
        5,
        "UnpicklingError",
        saying="invalid load key|truncated|could not find MARK|pickle data|ran out|STACK_GLOBAL",
    ),
    raised(
        4.5,
        "ValueError TypeError RuntimeError OSError IOError Exception AssertionError error",
        saying=(
            "could not convert string to|invalid literal for|time data .{0,80} does(?:n't| not) match"
            "|unconverted data|unknown string format|not in list of valid|isoformat string"
            "|cannot reshape array of size .{0,60}from file|magic (?:number|bytes)|truncated|corrupt"
            "|malformed|checksum|file signature"
            "|not a (?:valid )?(?:gzip|zip|HDF5|parquet|netcdf|tar|TIFF|FITS|PNG|JPEG|image|wav|archive)"
            "|bad (?:header|magic|crc)|cannot identify image|unsupported (?:file|image|audio|data) format"
            "|unexpected end of (?:file|data|input|stream)|Error tokenizing"
            r"|duplicate (?:labels|entries|keys|index|values)|input (?:\w+ )?contains (?:NaN|infinity)"
            "|Found array with 0 (?:sample|feature)|with 0 sample|missing (?:required )?columns?"
            "|columns? .{0,60}(?:missing|not found|do not match|not in)|usecols|mixed? types"
            r"|Length of values|inconsistent numbers? of samples|Expected \d+ (?:fields|columns)"
            "|embedded null|zero-size array|empty (?:dataset|dataframe|file|input|data)"
            "|No columns to parse|invalid (?:date|header|record|row|format|checksum|utf|byte|UTF)"
        ),
    ),
    raised(2, "KeyError", saying=r"not in index|are in the \[(?:columns|index)|None of \["),
    raised(
        1.8, "KeyError", calling="get_loc|_get_item_cache|_check_indexing_error|_getitem_column|hashtable"
    ),
    says(
        3.5,
        r"\b(?:file|archive|data|record|header|block|image|dataset|page|chunk|input|row|line"
        "|document|stream|footer|checkpoint|table|tile|frame|packet|member|zip|gzip|tar|parquet"
        r"|hdf5|netcdf|message|keyword|date|timestamp)\b.{0,60}\b(?:is |was |are |seems |appears "
        r"|may be |possibly "
        r"|looks )?(?:corrupt\w*|truncated|damaged|malformed|incomplete|unreadable|invalid"
        r"|not recogni[sz]ed|mangled|garbled|bad)\b",
        unless=rf"{_CONFIG}|option|argument|file ?system|handle|device|memory|usage",
    ),
    says(
        4,
        r"\b(?:corrupt(?:ed|ion)?|truncated|malformed|damaged) (?:or \w+ )?(?:file|archive|data"
        "|record|header|block|image|dataset|page|input|row|line|json|xml|csv|parquet|zip|gzip"
        "|stream|footer|jpeg|png|tiff)",
        unless=rf"memory|heap|{_CONFIG}|double-linked",
    ),
    says(
        5,
        "magic (?:number|bytes) (?:not found|in|mismatch)?|bad magic number|file signature not found",
        "not (?:a|an|in) (?:valid )?(?:gzip|zip|HDF5|parquet|netcdf|NetCDF|tar|TIFF|FITS|PNG|JPEG"
        r"|GRIB|image|bzip2|xz|LZMA|JSON|AVRO|ORC|SQLite|ROOT)\b(?:ped)?(?: (?:file|format"
        "|archive))?",
        "unknown (?:file|input) format|file is not a (?:zip|database|valid)",
        "unrecogni[sz]ed (?:file |data |image )?format|unsupported (?:file|image|audio|data) format",
        "PytorchStreamReader|failed finding central directory",
        "unexpected end of (?:file|data|input|stream|JSON|archive)|premature end of|end-of-stream",
        "end of file$",
        "Fortran runtime error: (?:End of file|Bad (?:real|integer|value|logical)|End of record)",
        "end-of-file during read|input conversion error|incorrect header check",
        "invalid (?:compressed|stored block|distance|block type)",
        "crc(?:32)? (?:check |error|mismatch|failed|validation)",
        "checksum (?:mismatch|error|fail|does not|did not|validation)",
        "hash(?:es)? (?:mismatch|do(?:es)? not match)",
        r"(?:file size|md5|sha\d+) (?:mismatch|does not match)|integrity check failed",
        unless=rf"{_CONFIG}",
    ),
    says(
        4,
        "codec can't decode|invalid (?:start|continuation) byte|invalid UTF-?8|illegal byte sequence",
        "Expecting (?:value|property name|',' delimiter)|Extra data: line",
        "could not convert string to float|invalid literal for int|Error tokenizing data",
        r"Expected \d+ fields (?:in line \d+, )?saw|line \d+ did not have \d+ elements",
        r"duplicate 'row\.names'|not well-formed|mismatched tag|no element found",
        "number of (?:columns|fields) .{0,40}(?:mismatch|differ|changed|incorrect)",
        "wrong number of (?:columns|fields)|could not parse|failed to parse|parse error|parsing error",
        "error parsing|cannot parse|unable to parse(?! string as)|more columns than column names",
        unless=rf"{_CONFIG}|option|argument|command ?line|flag|syntax",
    ),
    says(
        3,
        "NetCDF: (?:HDF error|Unknown file format|Index exceeds|Attribute not found"
        "|Variable not found|Not a valid)",
        "HDF5-DIAG",
        "(?:missing|unknown|unexpected|invalid|duplicate) (?:columns?|fields?|values? in"
        r"|timestamps?|rows?|labels?|categories|schema|dimension name)\b",
        "schema (?:mismatch|validation|does not match|error)",
        "columns? .{0,40}(?:not found|does not exist|missing)|violates? .{0,20}constraint",
        "UNIQUE constraint|out of bounds (?:nanosecond )?timestamp",
        unless=rf"{_CONFIG}|FROM clause|SELECT|Binder|unexpected keyword",
    ),
    named(
        3,
        "Decod(?:e|ing)|Pars(?:e|er|ing)|Format|Corrupt|Checksum|Schema|Malform|Truncat"
        "|Invalid(?:Data|File|Header|Record|Json)",
        unless=_CONFIG,
    ),
    named(1.5, "Validation|Integrity|Data(?!base)"),
    says(
        4,
        r"(?:error|fail\w*|unable|cannot|could not)\b.{0,30}\b(?:decompress|decod|inflat|untar|unzip)\w*",
        "not allowed after EOF marker|invalid LOC header|invalid or corrupt jarfile",
    ),
    raised(2.5, "RasterioIOError CPLE_OpenFailedError", unless="other process|lock"),
    says(5, "couldn't deserialize thrift|deserializing page header"),
    says(
        1.3,
        r"\b(?:corrupt\w*|malformed|unreadable|truncated|inconsistent)\b",
        unless="memory|heap|mpi_|message",
    ),
    says(
        3.5,
        r"(?:error|failure|problem|fail(?:ed|s)?) (?:while |when |in |to )?(?:reading|read|parsing"
        r"|decoding|decode"
        r"|loading|load) (?:\w+ ){0,3}(?:block|record|header|chunk|tile|strip|page|row|line|frame"
        r"|stream|image|(?:sub)?fields?)\b",
        r"(?:not enough|too (?:little|few)|insufficient|no more) (?:data|bytes|values|records|lines) (?:in"
        r"|for|from|left)\b",
        r"\b(?:invalid|bad|wrong|missing|unknown|unexpected) (?:\w+ ){0,2}(?:header|magic|signature|marker"
        r"|checksum)\b",
        r"\b(?:illegal|bad|wrong|invalid|impossible) (?:value|date|entry|record|length|message length"
        r"|number) .{0,20}\b(?:in|at|on|for) .{0,20}\b(?:record|line|row|header|column|field|file"
        r"|message)\b",
        r"\b(?:file|input|dataset|archive)\b.{0,20}\b(?:has|contains|with) (?:0|no|zero) (?:records|rows"
        r"|reads|samples|sequences|lines|entries|atoms|events)\b",
        r"\bdoes not (?:appear|seem|look) to be (?:a )?(?:valid )?(?:\w+ )?(?:archive|file|image|dataset"
        r"|table)\b|\bparse (?:failure|error)\b|wrong message length",
        r"(?:wrong|unexpected|received|actual|file) (?:byte |file )?size\b.{0,40}\bexpected\b"
        r"|\bexpected \d+ more bytes",
        r"\bmarker is absent|got \d+ bytes, expected \d+|validation error: ERROR: Record",
        r"\b(?:are|is|has|have) (?:of )?(?:a )?different lengths?|lib(?:png|jpeg|tiff|xml2?) error"
        r"|(?<!\w)Read Error$",
        unless=rf"{_CONFIG}|memory|socket|connection|http",
    ),
    says(
        3,
        r"\berror in (?:\S+ )?(?:file|input)\b.{0,30}\b(?:at )?(?:line|record|row|byte|position) \d+",
        r"\bin(?:compatible|consistent|valid) (?:contigs|dimensions? in|grids?|calendars?|coordinates"
        r"|records?|reads?)\b",
        r"\bnumber of \w+ in .{0,60}does not (?:match|agree)",
        unless=rf"{_CONFIG}|syntax|\.py\b",
    ),
    _down_a_pipe,
    says(
        3,
        r"\btimes?\b.{0,60}\b(?:before|after|outside|beyond|out of) (?:of )?(?:the )?(?:range|end|start"
        r"|beginning) of (?:list|data|file|the)\b",
        r"\b(?:file|input|archive)\b.{0,20}\bappears to be (?:an? )?(?:\w+ ){0,2}(?:format|dump|archive"
        r"|text|file)\b",
        r"\bsaw .{1,40}\bbut (?:was )?expect(?:ed|ing)\b|\bbut expected \d+-based\b",
    ),
    says(
        3.5,
        r"\bformat version\b.{0,60}\bnot\b|unsupported (?:file |format )version|has no column named",
        "fail(?:ed)? to open .{0,120}: exec format error",
    ),
    says(
        3.5,
        r"\bduplicate (?:key|entry)\b",
        r"\bmalformed\b|invalid character .{0,20} in|lengths? (?:differ|do not match)",
        unless=_CONFIG,
    ),
    suggest=[
        "Look at the file itself: its size, its first bytes (`head -c 200 FILE | xxd`), and a checksum "
        "against the source's.",
        "If it was written or copied by an interrupted step, make or fetch it anew; write to a temporary "
        "name and rename.",
        "Check what comes in before the long computation: columns, types, ranges, missing values.",
    ],
)
