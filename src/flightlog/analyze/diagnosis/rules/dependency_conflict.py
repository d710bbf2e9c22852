"""Packages are there, or asked for, in versions that do not go together."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, named, raised, says

rule = Clues(
    raised(
        5,
        "VersionConflict ContextualVersionConflict ResolutionImpossible UnsatisfiableError",
        "LibMambaUnsatisfiableError SolverProblemError DependencyError UnsupportedClassVersionError",
        "PackagesNotFoundError ResolvePackageNotFound InstallationError DistributionNotFound",
        "ResolverError ResolutionError InvalidRequirement NoSuchMethodError",
        "IncompatibleClassChangeError DependencyConflict VersionMismatch IncompatibleVersionError",
        "RequirementsConflicted VersionMismatchError ResolutionTooDeep SpecNotFound",
        "AbstractMethodError NoSuchFieldError VerifyError LinkageError ClassFormatError",
    ),
    raised(
        5.5,
        "ImportError RuntimeError ValueError ModuleNotFoundError AttributeError Exception TypeError",
        saying=(
            r"requires? [\w.\[\]-]+ ?(?:[<>=!~]=?|version|to be).{0,120}(?:but|found|installed|you have"
            r"|current)"
            "|is required for a normal functioning|compiled using NumPy 1|binary incompatibility"
            "|size changed, may indicate|Descriptors cannot be created directly"
            "|compiled (?:against|for|with) (?:a )?(?:different |older |newer |API |module )?(?:version|ABI"
            "|API)"
            "|incompatible (?:version|with (?:the )?(?:installed|numpy|this version))"
            r"|numpy\.core\.multiarray failed|module was compiled against"
        ),
    ),
    says(
        5.5,
        "which is incompatible|conflicts with any installable|no viable options",
        r"cannot be installed (?:\(|because)|conflicting dependenc|dependency conflict",
        "conflict(?:s)? with (?:existing|other|pinned|installed)",
        "(?:has|have|are|with) (?:incompatible|conflicting) (?:versions?|requirements?|dependencies)",
        "dependency resolver|incompatible (?:with )?(?:versions?|packages?)|package conflicts",
        "found conflicts|unsatisfiable|nothing provides|unable to resolve dependenc",
        "could not solve for environment|no solution found|version solving failed",
        "resolution (?:impossible|failed)|dependency tree|ERESOLVE|peer dep",
        "cannot install .{0,120}because",
    ),
    says(
        5,
        "could not find a version that satisfies|no matching distribution found",
        "(?:packages|package) (?:are|is) not available from",
        "is not available for this (?:platform|python)|requires[- ]python|requires a different Python",
        r"not a supported wheel on this platform|requires python (?:version )?[\d<>='\"]",
        "running Python.{0,40}(?:but|not)",
    ),
    says(
        4.5,
        "but (?:you have|you'll have|found|version|the installed|installed|current|only|there is"
        r"|it's|\S+ is installed|none is installed)\b.{0,60}\d\.\d",
        r"requires .{0,80}(?:[<>=!~]=|version|>=).{0,100}\bbut\b",
        unless="tensor|shape|argument|dimension|parameter|dtype|columns|positional|device",
    ),
    says(
        4,
        "version (?:mismatch|conflict|incompatib)|mismatch(?:ed)? (?:in )?versions?",
        "different (?:minor )?versions? (?:of (?:Python|the)|than)|has different version",
        r"compiled using NumPy 1|numpy\.dtype size changed|binary incompatibility",
        "library version mismatched|ABI (?:version )?(?:mismatch|incompatib)|class file version",
        "unsupported class file|not compatible with (?:this|the installed|your) version",
        r"versions? (?:of \S+ )?(?:are|is) (?:not compatible|incompatible)|older version of",
        "newer version of .{0,30}(?:required|needed)",
        r"(?:please |try )?(?:upgrad|downgrad)\w+ .{0,40}(?:version|to \d|==|>=)",
        "Unsatisfiable requirements|is being loaded, but >=",
        unless="newer version of pip|new release of pip|driver/library",
    ),
    named(
        3,
        "Version(?!ed)|Incompatib|Dependency(?!(?:NotFound|Missing))|Requirement|Conflict",
        unless="merge|git",
    ),
    says(
        4.5,
        r"mismatch(?:es)? the version|(?<!library )version .{0,60}\bmismatch|built (?:with|for"
        r"|against) (?:a )?different version|version \S{1,60} not found \(required by",
        r"(?:is|was|being) (?:already )?loaded, but [<>=]{1,2} ?\d|but required is (?:at least|exact)",
        r"or (?:newer|higher|later|greater|above) is required|(?:requires?"
        r"|needs?) \S+ (?:version )?v?\d[\w.]* or (?:newer|higher|later|above)|built under \S+ version"
        r"|you are running version|currently active version|only supports? \S+ \d",
        r"\bdependenc(?:y|ies)\b.{0,40}\b(?:could|can) ?not be (?:resolved|satisfied|met)\b",
        r"could not (?:find|transfer|resolve) (?:the )?(?:artifact|all (?:dependencies|artifacts|files))\b",
        "packages were downgraded|held broken packages|unmet dependencies|dependency problems prevent",
        r"not part of the (?:dependency )?lock|\block ?file\b.{0,60}\b(?:out of (?:date|sync)|outdated"
        r"|not (?:in sync|up[- ]to[- ]date)|needs to be updated)",
        r"\b(?:architecture|platform)\b.{0,60}\b(?:could not|cannot|can't|does not|did not) (?:be )?(?:run"
        r"|match|execute)",
        r"\bbuilt for (?:a )?(?:different|another) (?:architecture|platform|CPU)\b",
        r"\bversion \S{1,20} \(?(?:but )?expected (?:version )?v?\d",
    ),
    says(
        3,
        "(?:was|is) a deprecated alias|(?:was|been) removed in (?:version |numpy |pandas "
        r"|\S+ )?\d|no longer (?:available|supported) in \S+ \d",
    ),
    says(4, r"compiled with (?:a )?different|different (?:\w+ ){0,3}versions\b|unsuitable version"),
    says(
        2.2,
        r"\bbuilding wheel for\b.{0,80}\b(?:did not run|failed)|failed (?:to build"
        r"|building)\b.{0,40}\bwheel|could not build wheels|metadata-generation-failed",
    ),
    suggest=[
        "Make a fresh environment from a lock file (`uv lock`, `pip-compile`, `conda-lock`) rather than "
        "adding to an old one.",
        "See what does not fit: `python -m pip check`; `conda list`; for one package, `python -m pip index "
        "versions NAME`.",
        "Pin the package that is named to a version that the others accept.",
    ],
)
