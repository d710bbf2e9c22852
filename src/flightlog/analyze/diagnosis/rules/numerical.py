"""The computation left the numbers it can work with: not a number, overflow, singular, no convergence."""

from __future__ import annotations

from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, ended, named, raised, recorded, reports, says


def _values(facts: RunFacts) -> Iterator[Sign]:
    if facts.nonfinite:
        names = ", ".join(f"`{name}`" for name in facts.nonfinite[:3])
        text = f"{names} had become NaN or infinite before the end"
        yield Sign(source=Source.resources, weight=3, text=text)


_NAN = r"(?:\bNaNs?\b|\bnans?\b|\bINF\b|\binfinit(?:y|e)\b|\b(?:non|not)[- ]finite\b|\binf\b|not a number)"
_INPUT = r"input (?:\w+ )?contains|cannot convert"
"""What came in was not finite: that is for the data."""

rule = Clues(
    recorded(_values),
    says(1.5, r"^\s*[\d.eE+-]+\s.{0,80}\bNaN\b.{0,60}\bNaN\b"),
    says(
        3.5,
        r"\b(?:atoms?|particles?|molecules?|nodes|involved)\b.{0,40}\bmoved (?:too far|further|more than)\b",
        r"(?:\bnan\b[\s,;]{1,8}){3}",
        r"\b(?:energy|residual|norm|pressure|velocity|density|temperature)\b.{0,10}[=:] ?-?nan\b",
        r"\b(?:velocity|speed|temperature|pressure|density|height|energy|force)\b.{0,20}\b(?:is|are|was"
        r"|became) "
        r"(?:larger|greater|higher|smaller|lower|less) than [\d.+-]",
    ),
    raised(
        5.5,
        "FloatingPointError LinAlgError ConvergenceError ConvergenceWarning ArpackNoConvergence",
        "ArpackError NoConvergence SingularException PosDefException SingularMatrixError",
        "NonFiniteError NotConvergedError SCFError SolverError SCFConvergenceError DivergenceError",
        "IntegrationError NanError LAPACKException ConvergenceFailure NotPSDError NanInfException",
        "PositiveDefiniteException",
    ),
    raised(4, "OverflowError", unless="pickle|serializ|C (?:long|int)|python int too large|date value"),
    raised(2, "OverflowError"),
    raised(2.8, "ZeroDivisionError"),
    raised(4, "ArithmeticException DomainError InexactError DivideError"),
    raised(
        4.5,
        "ValueError RuntimeError AssertionError Exception SystemExit",
        saying=rf"{_NAN}|math domain error|singular|positive[ -]definite|converge|diverg",
        unless=_INPUT,
    ),
    says(
        4,
        rf"\bloss\b.{{0,40}}{_NAN}|{_NAN}.{{0,40}}\bloss\b",
        r"(?:contains?|found|detected|encountered|returned|produced|became|got|is|are|has|have"
        rf"|invalid) (?:an? )?(?:value )?(?:of )?{_NAN}",
        rf"{_NAN} (?:values? |or \w+ )?(?:were |was |is |are )?(?:detected|found|encountered|produced"
        r"|in (?:the )?(?:loss|gradient|solution|residual|output|input))",
        rf"{_NAN} gradients?|gradients? .{{0,30}}{_NAN}",
        unless="pandas|column|cannot convert",
    ),
    says(
        5,
        r"\b(?:singular matrix|matrix is (?:\w+ )?singular|exactly singular|numerically singular"
        "|not positive[- ]definite|ill[- ]conditioned|rank[- ]deficient|zero pivot"
        "|computationally singular|(?:SVD|eigenvalues?|eigensolver|solver|iterations?|SCF|Newton"
        "|optimization|optimizer|algorithm|solution|method|electronic|minimization|fit) (?:did"
        r"|does|has|have|do|failed|not|could)[ \w]{0,20}(?:not )?(?:to )?converge)",
    ),
    says(
        4,
        r"\b(?:did not|does not|failed to|not|fails to|has not|have not|without) converg",
        r"(?:error|fail\w*|not|cannot|unable).{0,30}\bbracket(?:ing|ed)?\b",
        r"\bbracket(?:ing|ed)?\b.{0,30}(?:fail|error|incorrect|wrong|invalid)|must have different signs",
        "line ?search (?:failed|has failed|error)|(?:is|are) not (?:hermitian|unitary|symmetric)",
        r"(?:fail|error).{0,30}\b(?:LAPACK|BLAS|ScaLAPACK)\b",
        r"\b(?:LAPACK|BLAS|ScaLAPACK)\b.{0,40}(?:fail|error|info ?= ?-?[1-9])",
        "iteration is not making (?:good )?progress",
        "convergence (?:failure|failed|not (?:achieved|reached))|no convergence|non-?convergence",
        r"\bdiverg(?:ed|ing|ence)\b|solution (?:blew|blow)|blow(?:n|ing)? up|instability detected",
        r"solution is (?:probably |likely )?unstable|convergence (?:test|criterion|tolerance) (?:failed|not)",
        "too many (?:attempts|iterations|cutbacks|sub-?steps|convergence failures)",
        "steps? taken before reaching|excess work done|failed to find (?:a )?(?:root|minimum|solution)",
        "optimal parameters not found|number of (?:function )?(?:calls|evaluations) .{0,30}(?:reached"
        "|exceeded)",
        "(?:matrix|hessian|jacobian|covariance).{0,20}(?:is |was )?not (?:be )?inver(?:t|tible|ted)",
        "exceeded (?:maximum|max) (?:number of )?(?:iterations|newton)",
        "maximum (?:number of )?iterations (?:reached|exceeded)",
        unless="branch",
    ),
    says(
        4,
        "floating[- ]point (?:exception|error|overflow|invalid)",
        "(?:invalid value|divide by zero|overflow|underflow) encountered|(?<!Error: )division by zero",
        "divide by zero|arithmetic (?:exception|overflow)",
        "numerical(?:ly)? (?:instabilit|unstable|overflow|error|issue|problem)|math domain error",
        "IEEE_(?:INVALID|DIVIDE_BY_ZERO|OVERFLOW)|integer overflow|gradient overflow",
        "required step size is less than|step size (?:became|is) (?:too|effectively)"
        "|repeated (?:convergence|error test) failures",
        rf"{_NAN} residual|DIVERGED_\w+|evaluates to log\(0\)|dt\S* <= ?dtmin",
        r"floating (?:invalid|overflow|divide)|forrtl: error \((?:65|72|73)\)|simulation (?:is |became "
        r"|went )?unstable|non-numeric (?:pressure|atom|energy|box)",
    ),
    says(
        3.5,
        r"(?:time ?step|step size|dt|\bh\b) .{0,30}(?:too small|below minimum|underflow|smaller than)",
        r"\bCFL\b|courant number",
        "negative (?:pressure|density|volume|temperature|jacobian|cell volume|energy|concentration"
        "|thickness)",
        "(?:square root|sqrt|log(?:arithm)?) of (?:a )?(?:negative|zero)|unphysical|non-physical",
        "lost (?:too many )?(?:atoms|particles)|lost atoms|out of range atoms|LINCS WARNING",
        "energy drift|(?:energy|mass|momentum|charge|volume|water) (?:is |was )?not conserved",
        "residual.{0,30}(?:increas|too large)",
        "temperature .{0,30}out of (?:range|bounds)|detected NaN",
        unless="CFLAGS",
    ),
    ended("SIGFPE", weight=4.5),
    named(
        3.5,
        "Converg|Singular|Na[nN](?![a-z])|Overflow(?!.*Stack)|LinAlg|Diverg|FloatingPoint|Numeric"
        "|NonFinite|Infeasib",
        unless="StackOverflow|pickle",
    ),
    reports(
        4,
        r"\bNA/NaN/Inf\b",
        r"\bP?[SDCZ](?:PO|GE|SY|HE|GB|PB|PT|ST|TR)[A-Z0-9]{2,4}\b.{0,40}(?:[Ff]ail|[Ee]rror|INFO|info"
        r"|[Rr]eturn ?[Cc]ode)",
        source=Source.exception,
    ),
    suggest=[
        "Find where it begins: check inputs with `numpy.isfinite(x).all()`, and let it raise at once: "
        "`numpy.seterr(all='raise')`, `torch.autograd.set_detect_anomaly(True)`, "
        "`jax.config.update('jax_debug_nans', True)`.",
        "Smaller steps (time step or learning rate), clipped gradients, higher precision, scaled inputs.",
        "With linear systems: look at the condition number, and add a small multiple of the identity.",
    ],
)
