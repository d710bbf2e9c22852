"""A service does not know who is asking, or does not let them in."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, errno, named, raised, reports, says, status
from flightlog.analyze.diagnosis.rules.permission import REMOTE

rule = Clues(
    raised(
        5.5,
        "NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError",
        "UnauthorizedSSOTokenError SSOTokenLoadError DefaultCredentialsError RefreshError",
        "ClientAuthenticationError CredentialUnavailableError AuthenticationError",
        "AuthenticationException GatedRepoError AuthenticationFailed AuthError Unauthorized",
        "InvalidCredentials LocalTokenNotFoundError UnauthorizedError PasswordRequiredException",
        "AuthorizationError Forbidden HttpAccessTokenRefreshError TokenExpiredError LoginRequired",
        "InvalidToken ExpiredSignatureError InvalidApiKeyError ForbiddenException HTTPForbidden",
        "ProfileNotFound AuthenticationRequiredError",
    ),
    raised(
        4.5, "PermissionError PermissionDenied PermissionDeniedError AccessDeniedException", saying=REMOTE
    ),
    raised(3.5, "PermissionDeniedError"),
    errno("EACCES", 3, unless=rf"^(?!.*(?:{REMOTE}))"),
    reports(
        5.5,
        r"\b(?:AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken(?:Exception)?"
        "|RequestExpired|InvalidClientTokenId|UnrecognizedClientException|AuthorizationFailure"
        "|AuthenticationFailed|InvalidAuthenticationToken|NoAuthenticationInformation|AuthFailure"
        "|UnauthorizedOperation|AccountProblem|UNAUTHENTICATED|InvalidIdentityToken"
        r"|AuthorizationPermissionMismatch|AuthorizationHeaderMalformed)\b",
    ),
    says(
        5.5,
        r"Permission denied \((?:publickey|password|keyboard|gssapi)|Host key verification failed",
        "Too many authentication failures|could not read (?:Username|Password)",
        r"Authentication failed\b|Server refused our key",
        "unable to locate credentials",
        "no (?:valid )?credentials? (?:were |was )?(?:found|provided|available|cache)",
        "could not (?:load|find|automatically determine) (?:the )?(?:default )?credentials",
        "credentials? (?:have |has |are |is |were |was )?(?:expired|invalid|missing|not found"
        "|not provided|not valid|not configured|incorrect|rejected|required)",
        "(?:invalid|bad|wrong|incorrect|expired|missing) (?:user )?credentials?",
        "invalid user ?name or password|credential denied",
        "(?:unable|failed|could not|cannot|couldn't) (?:to )?(?:load|find|locate|get|obtain"
        r"|retrieve|refresh|read|resolve)\b.{0,40}\bcredentials",
        "api_key (?:is )?not|call \\S{1,40}login",
    ),
    says(
        3.5,
        r"\b(?:api|access|secret|auth|security|session|bearer|refresh|id|user|login)?[ _-]?(?:key"
        r"|token|ticket|password|signature|secret)\b.{0,50}\b(?:is |was |has |has been "
        "|are )?(?:expired|invalid|revoked|incorrect|not configured|not recognized|rejected"
        "|malformed|must be set|not valid|not set|wrong)",
        "(?:invalid|incorrect|expired|bad|missing|wrong|no) (?:api|access|secret|auth"
        "|authentication|security|session|bearer)?[ _-]?(?:key|token|password"
        r"|signature)\b(?! (?:error|at|in|in column|type|column))",
        unless=(
            "unexpected token|load key|json|syntax|parse|KeyError|primary key|foreign key|missing key"
            r"|public key size|keyword|Missing key\(s\)|no key\b"
        ),
    ),
    says(
        4.5,
        r"\b(?:authentication|authorization|login|sign-?in) (?:is |was |has )?(?:required|failed"
        "|failure|error|denied|unsuccessful|expired|needed)",
        r"not (?:authorized|authenticated|logged in)|unauthori[sz]ed\b",
        "(?:must|need to|please) (?:be )?(?:authenticate|log ?in|logged in|sign in)",
        "access to (?:model|dataset|repo|this resource|resource).{0,80}(?:restricted|gated|denied)",
        "gated repo|pull access denied|requested access to the resource is denied",
        "does not have .{0,60}(?:access|permission).{0,60}(?:bucket|object|project|resource|secret)",
        "is not authorized to perform",
        r"\bInvalid (?:authentication )?credential|Munge (?:decode|encode) failed",
        "Protocol authentication error",
    ),
    says(
        4,
        r"\b(?:40[13]) (?:unauthorized|forbidden|client error)|HTTP(?: error)? 40[13]|\bForbidden\b",
        unless="rate limit|socket",
    ),
    says(1.5, "kerberos|kinit|GSSAPI|krb5"),
    status(401, 407, weight=4.5),
    status(403, weight=4),
    named(
        3.5,
        "Authenti|Authoriz|^Auth|Credential|Unauthori[sz]ed|Forbidden|Login|Api_?Key"
        "|Token(?:Expired|NotFound|Invalid)",
    ),
    reports(
        5,
        "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH"
        "|MISSING_AUTHENTICATION_TOKEN",
    ),
    says(
        4,
        r"\b(?:gcloud auth|aws sso|az|docker|huggingface-cli|hf auth|wandb|gh auth|oc|kubectl oidc"
        r"|globus|conda|npm) login\b|no active account|active account selected"
        "|obtain new credentials",
        r"\w*credential\w*\S*.{0,20}\b(?:failed|failure)|delegation failed|access forbidden|access level",
        r"\b(?:grid|voms|x509|user) (?:proxy|certificate)\b.{0,40}\b(?:expired|invalid|not found|missing)",
        r"\b(?:token|key|account|identity|role)\b.{0,40}\b(?:has no|does not have|lacks) (?:\w+ )?(?:access"
        r"|scope)",
    ),
    says(5, r"(?:invalid|incorrect|wrong|bad) user ?name ?(?:or|/|and) ?password"),
    reports(4.5, r"\bAADSTS\d{4,7}\b|[Aa]ccess denied for user|\(using password: (?:YES|NO)\)"),
    says(3.5, r"\b(?:Head|Get|Put|Post) (?:''|<url>): (?:denied|unauthorized|forbidden)\b"),
    says(
        3.5,
        r"\blicen[cs]e\b.{0,30}\b(?:checkout|check-out|key|validation|activation)\b.{0,20}\b(?:failed"
        r"|denied|invalid|expired)\b",
        r"\blicen[cs]e (?:has |is )?(?:been )?(?:expired|invalid|not (?:valid|found|available))\b"
        r"|\bno (?:valid |available )?licen[cs]es?\b",
        unless="MIT|GPL|Apache|BSD",
    ),
    suggest=[
        "Log in again where the task runs, or hand the credential to the workers: they do not see your "
        "shell's.",
        "See who you are for the service: `aws sts get-caller-identity`, `gcloud auth list`, `az account "
        "show`, `hf auth whoami`, `ssh -T HOST`.",
        "If that is right, ask the owner for access to this bucket, repository or project.",
    ],
)
