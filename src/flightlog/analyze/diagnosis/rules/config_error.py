"""What was asked for is wrong: options, settings, environment variables, or a request the system cannot
grant.
"""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, named, raised, reports, says

_FILE = r"config|\.ya?ml|\.toml|\.ini\b|\.cfg|settings|hydra|omegaconf"

rule = Clues(
    raised(
        5,
        "ConfigError ConfigurationError ImproperlyConfigured ConfigAttributeError ConfigKeyError",
        "ConfigCompositionException MissingMandatoryValue MissingConfigException",
        "UnsupportedInterpolationType InterpolationKeyError InterpolationResolutionError",
        "ConfigTypeError ConfigValueError OverrideParseException ScannerError ComposerError",
        "ConstructorError TOMLDecodeError TomlDecodeError NoSectionError NoOptionError",
        "MissingSectionHeaderError DuplicateOptionError UsageError BadParameter NoSuchOption",
        "MissingParameter argparse.ArgumentError ArgumentTypeError BadArgumentUsage",
        "InvalidConfigError MissingConfigError ConfigException ConfigNotFound InvalidConfiguration",
        "MisconfigurationException SettingsError InvalidSettingError UnknownEngine HydraException",
        "ConfigFileError OptionError ValidationErrorConfig StrictDataclassFieldValidationError",
        "UnrecognizedFlagError IllegalFlagValueError InvalidArgumentException",
        "InvalidConfigurationError UndefinedValueError ConfigLoadError BadOptionUsage BadConfigError",
        "InterpolationMissingOptionError ConfigIndexError ConfigParserError NoRegionError",
        "ConfigFileException",
        "yaml.parser.ParserError",
    ),
    raised(2, "BadRequestError BadRequest InvalidParameterValue ParamValidationError InvalidRequest"),
    raised(4, "ValidationError", saying=rf"settings|config|{_FILE}|Extra inputs are not permitted"),
    raised(2.5, "ValidationError"),
    raised(
        3,
        "JSONDecodeError ParserError SchemaError KeyError ValueError TypeError UnicodeDecodeError",
        "FileNotFoundError AssertionError RuntimeError AttributeError",
        saying=_FILE,
    ),
    raised(5, "KeyError", calling="environ|getenv"),
    raised(4.5, "KeyError", saying="(?-i:^KeyError: '[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+')"),
    says(1.2, "environment variable|env(?:ironment)? var"),
    says(
        3,
        "must be (?:set|specified|provided|supplied|defined|given|one of|either|divisible|passed"
        "|a multiple of"
        "|configured|positive|less than|greater than|at (?:least|most)|in (?:the )?range)",
        "should be one of|not a valid (?:choice|option|value|mode|device|backend|strategy|name)",
        "is not (?:one of|supported|a supported|in the list|allowed|recognized)",
        "unsupported (?:option|value|mode|backend|type|device|strategy|optimizer|model)",
        "unknown (?:option|model|optimizer|backend|scheduler|argument|mode|name|architecture|key"
        "|setting|strategy|solver)",
        "unrecogni[sz]ed (?:option|argument|configuration|model|key|parameter|flag)",
        "invalid (?:choice|option|value for|configuration|setting|argument .{0,40}option)",
        "expected one of|cannot be used (?:together|with)|mutually exclusive",
        "not (?:be )?(?:set|configured|specified|defined) (?:in|for|by)",
        "requires? (?:--|the option|setting)|no such (?:option|setting)",
        "missing (?:required )?(?:option|setting|configuration|argument:|parameter:|key .{0,30}config)",
        r"can only be used with|only supports?\b(?! \S+ \d)",
        unless="format version|credential|token|api.?key|password|shape|tensor|dimension|axis|ndarray|dtype",
    ),
    says(
        5,
        r"^\s*usage: ",
        r"^\s*\S{1,80}: error: (?:unrecognized|the following|argument|ambiguous|invalid|too few|one of"
        r"|unknown)",
        "the following arguments are required",
        "unrecogni[sz]ed (?:arguments?|options?|parameter|flag|command|configuration|key)",
        "invalid choice|no such option",
        "unknown (?:option|flag|argument|command|parameter|configuration|setting|keyword|directive"
        "|subcommand)",
        "(?:un)?expected (?:option|extra argument)",
        "invalid (?:option|argument|flag|configuration|setting|value for|parameter|value .{0,40}(?:option"
        "|for))",
        "bad (?:option|parameter|configuration)",
        "missing (?:required )?(?:argument|option|parameter|flag|setting|configuration|value for|command)",
        "requires (?:an )?argument|flag provided but not defined|illegal option|no such command",
        "option .{0,60}(?:not (?:allowed|recogni[sz]ed|supported)|requires|is invalid)|misconfigur",
        unless="invalid argument: .{0,40}(?:read|write)|keyword argument",
    ),
    says(
        4.5,
        r"environment variables?\b.{0,80}\b(?:not|missing|must|required|unset|undefined|empty|isn't)",
        r"(?:is|was|are) (?:not set|unset)\b|unbound variable|must be set|expected, but not set",
        r"must (?:have|give|name|include) an? (?:\w+ )?(?:queue|partition|account|project|walltime|option"
        r"|value)\b",
        r"--[\w-]{2,40}: (?:invalid|bad|unknown|not a valid)|\b(?:job )?submission error\b",
        "parameter (?:null or )?not set|not (?:been )?configured|JAVA_HOME",
        "variable is not defined in environment",
        unless="credential|token|api.?key|password",
    ),
    says(
        4.5,
        "(?:error|problem|invalid|failed|unable|cannot|could not|mistake"
        r"|mapping values)\b.{0,60}\b(?:config(?:uration)?|settings|yaml|toml|manifest"
        "|schema file)",
        "config(?:uration)?(?: file)? (?:error|is invalid|invalid|not found|is missing|missing"
        "|is wrong|problem|is not valid|has)",
        "mapping values are not allowed|could not find expected ':'",
        "found character .{0,30}cannot start any token|found undefined tag",
        "while (?:parsing|scanning) a (?:block|flow|simple|quoted)",
        "additional properties are not allowed|is a required property|is not valid under any",
        "extra (?:fields|inputs) (?:are )?not permitted|field required|strict decoding error",
        "unknown field|key .{0,40}not in struct",
        unless=r"package configuration|\bmount\b|permission denied",
    ),
    reports(
        5.5,
        r"(?:sbatch|salloc|qsub|bsub|scontrol|condor_submit|msub|flux|oarsub)\b.{0,40}(?:error"
        "|ERROR|[Ii]nvalid|[Uu]nknown|[Ii]llegal|[Bb]ad)",
        "srun: error: (?:Unable to (?:create|allocate|satisfy)|Invalid|Task launch|CPU binding|You must)",
        "Batch job submission failed|Unable to allocate resources",
        "Invalid (?:account|partition|qos|feature|node|generic|job|--|wckey|time|number|option"
        "|resource|constraint|directive)",
        "[Rr]equested (?:node configuration|partition|time limit|nodes|resource)",
        r"More processors requested than permitted|QOS\w*Limit|AssocGrp\w+|AssocMax\w+|MaxJobs",
        "Job violates accounting|PartitionTimeLimit|PartitionNodeLimit|ReqNodeNotAvail|BadConstraints",
        "InvalidAccount|InvalidQOS|Unknown queue|Illegal (?:attribute|queue|use of)",
        "DependencyNeverSatisfied|job (?:submit|submission) .{0,30}(?:rejected|failed|limit)",
        "exceeds (?:queue|partition|resource|the) .{0,40}limits?|unsupported option",
        unless=(
            "time limit exceeded|Connection|contact slurm controller|communication|Zero Bytes|TIME LIMIT"
            "|Socket timed out|Exited with|Killed|Out Of Memory"
        ),
    ),
    reports(
        5,
        "CreateContainerConfigError|CreateContainerError|InvalidImageName|ErrImageNeverPull",
        r"RunContainerError|StartError|(?:configmap|secret) \"[^\"]+\" not found|couldn't find key",
        "is invalid: |Unschedulable|FailedScheduling|Insufficient (?:cpu|memory(?! on (?:accelerator"
        "|device))|nvidia)",
        "didn't match (?:Pod's )?node (?:affinity|selector)|untolerated taint|exceeded quota: ",
        "error validating|no matches for kind|invalid reference format|unknown shorthand flag",
        "unknown flag",
    ),
    reports(3, "ImagePullBackOff|ErrImagePull|exec format error|no such image"),
    says(
        3.5,
        "not enough slots available|there are not enough slots|A master URL must be set",
        "only one of .{0,60}(?:may|can|must)|mutually exclusive",
        "cannot be used (?:together|with|in combination)|conflicting options",
        r"the following module\(s\) are unknown|Unable to locate a modulefile|Unknown CMake command",
        r"Could not find a package configuration file|No CMAKE_\w+_COMPILER",
        "configure: error|not a directory or does not contain|invalid mode",
        "invalid (?:device|backend|strategy|solver|scheduler) (?:name|string|type)",
        "Default process group has not been initialized",
        "Error reading namelist|cannot match namelist|namelist",
        unless="credential|token|api.?key|memory",
    ),
    says(
        2.5,
        "CMake Error",
        r"\b(?:start|current|end|initial|stop) (?:time|date)\b.{0,40}\b(?:is )?(?:earlier|later|before"
        r"|after)\b",
        r"\b(?:overflow|too small|exceeded|insufficient)\b.{0,20}\b(?:boost|increase|raise"
        r"|enlarge) (?:the )?\w+_\w+",
        r"\bdoes not (?:fall|lie) (?:within|in) (?:the |a )?(?:valid|allowed|permitted)\b",
        r"\bdo(?:es)? not (?:currently |yet )support\b|^\s*'' for \S{1,200} is missing\b",
    ),
    says(
        2,
        "(?:please|you (?:must|need to|should|have to)) (?:set|specify|provide|pass|configure|choose)",
        unless="credential|token|api.?key|password|memory|shape|tensor",
    ),
    says(
        3,
        r"must be (?:used|run|called|started|launched) with|or more (?:processors|processes|tasks|ranks"
        r"|nodes|gpus)\b",
        unless="root|sudo",
    ),
    says(
        1.3,
        r"\b(?:invalid|unknown|unsupported|illegal|incompatible|missing)\b.{0,40}\b(?:options?|parameters?"
        r"|settings?"
        r"|keywords?|sections?|arguments?|input|configuration)\b|\b(?:section|keyword|option"
        r"|parameter)\b.{0,60}\bis unknown",
        unless="shape|tensor|dtype|file",
    ),
    named(3, "Config|Setting|Usage|BadOption|Misconfig"),
    named(1.5, "Param|Argument(?!Error)|Option|Validation"),
    says(
        2.5, r"expected format|invalid \w{2,20} (?:format|specification|syntax)", unless="file|data|json|date"
    ),
    reports(
        4.5,
        r"[Jj]ob not submitted|Request aborted by esub",
        r"Job rejected|is undefined in dictionary|syntax error in NAMELIST",
    ),
    says(4, r"parameters?\S* .{0,60}\b(?:is|are)\S* not valid|(?:invalid|unknown) (?:\w+ )?profile\b"),
    says(
        3.5,
        r"\billegal (?:\S+ )?(?:command|option|keyword|combination|setting)|too many (?:tasks|ranks"
        r"|processes|processors|cores|gpus) for",
        r"\binvalid value: |\b(?:each|every|per) (?:task|rank|process|processor|node)\b.{0,40}\bat least \d"
        r"|is not a divisor of",
        unless="instruction|column|character",
    ),
    reports(1.5, r"FOAM FATAL IO ERROR"),
    says(
        3,
        r"(?:unknown|invalid|unrecogni[sz]ed|unsupported) [\w ]{2,30} ''",
        unless="column|character|token|byte|date|literal|symbol|variable|identifier"
        "|file|path|key|name|module",
    ),
    says(
        2.5,
        r"\b(?:wrong|incorrect|invalid) number of (?:command[- ]line )?(?:arguments|parameters|options)\b",
        unless=r"\bgiven \d|\w\(|\bcall|positional|function|method",
    ),
    says(
        3.5,
        r"\b(?:action|keyword|command|option|style|directive|scheme|solver|model|unit|method|functional"
        r"|potential)"
        r" (?:''|\S{1,60}) is (?:not known|unknown|not recogni[sz]ed|not (?:a )?valid)\b",
        r"^\s*(?:error )?in (?:the )?input (?:to|of|for|section|deck|parameters?)\b",
        r"\b(?:interpret|pars|read|load)ing \S{1,200} as (?:an? )?(?:\w+ )?config(?:uration)?\b",
    ),
    says(
        3,
        "too many open files|open file limit|externally[- ]managed",
        r"\bexecuting '' at <|\berror calling \w+: |\b(?:label|value|field) validation error\b",
        r"(?-i:[Uu]nable to use (?:an? |the )?[A-Z]+_[A-Z_]+)",
    ),
    says(
        4.5,
        r"\b(?:option|value|setting|release|target|level) \S{1,40} is (?:no longer|not) supported\b"
        r"|\busage error\b",
        r"\b(?:wrong|incorrect|invalid|inconsistent) number of (?:MPI )?(?:PEs|processors|processes|ranks"
        r"|tasks|cores|nodes|threads)\b",
        "check for miss-?spelling",
    ),
    says(
        3.5,
        r"\bname\b.{0,60}\balready (?:in use|taken)\b|\bnetwork \S{1,80} not found\b|no such network\b",
        r"(?:does not|cannot) (?:work|be used) without\b|\b(?:contains?|have|has) (?:none of )?(?:these"
        r"|this|the) features?: ",
        r"\bunable to find (?:the )?requested (?:\w+ )?(?:type|style|method|option|scheme)\b",
        r"\bexceeded\W{1,4}(?:please )?increase (?:via|in|the value|\w+_\w+)\b",
        unless="iteration|memory|time ?limit|column",
    ),
    suggest=[
        "Compare the name and the value with what the program takes: its `--help`, its example "
        "configuration, or the site's list of queues and accounts (`sinfo`, `sacctmgr show assoc "
        "user=$USER`).",
        "If it is an environment variable, hand it to the workers, too: they do not always see your shell's.",
        "Let the program check its settings first, before the expensive part.",
    ],
)
