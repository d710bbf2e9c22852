"""Digests of code: what a function does, and what of the project it refers to."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from flightlog.session.digest.code import code_digest


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write modules, import them afresh, and give the digest of `f` in `main`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(**sources: str) -> bytes:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return code_digest(importlib.import_module("main").f)

    yield load
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def test_comments_docstrings_layout_and_place_do_not_count(project):
    assert project(main="def f(x): return x + 1") == project(
        main=(
            '"""Doc."""\nimport os\n\n\ndef f(x):\n    """Doc."""\n    # why\n    return (\n        x + '
            "1\n    )\n"
        )
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x): return x + 1", "def f(x): return x + 2"),
        ("def f(x): return x + 1", "def f(x): return x - 1"),
        ("def f(x): return x + 1", "def f(x): return x + 1.0"),
        ("f = lambda: 'a'", "f = lambda: 'b'"),
        ("def f(x): return x in {'a', 'b'}", "def f(x): return x in {'a', 'c'}"),
        ("def f(x): return [y for y in ('a',)]", "def f(x): return [y for y in ('b',)]"),
        ("K = 1\ndef f(x): return x + K", "K = 2\ndef f(x): return x + K"),
        ("K = [1, {2}]\ndef f(x): return K", "K = [1, {3}]\ndef f(x): return K"),
        ("def g(): return 1\ndef f(x): return g()", "def g(): return 2\ndef f(x): return g()"),
        ("def g(a=1): return a\ndef f(x): return g()", "def g(a=2): return a\ndef f(x): return g()"),
        (
            "def g(): return 1\ndef f(x): return map(lambda y: g(), x)",
            "def g(): return 2\ndef f(x): return map(lambda y: g(), x)",
        ),
        (
            "def h(): return 1\ndef g(): return h()\ndef f(x): return g()",
            "def h(): return 2\ndef g(): return h()\ndef f(x): return g()",
        ),
        (
            "class C:\n  def m(self): return 1\ndef f(x): return C().m()",
            "class C:\n  def m(self): return 2\ndef f(x): return C().m()",
        ),
        ("class C:\n  k = 1\ndef f(x): return C.k", "class C:\n  k = 2\ndef f(x): return C.k"),
        (
            "class B:\n  def m(self): return 1\nclass C(B): pass\ndef f(x): return C()",
            "class B:\n  def m(self): return 2\nclass C(B): pass\ndef f(x): return C()",
        ),
        (
            "class C:\n  @property\n  def m(self): return 1\ndef f(x): return C()",
            "class C:\n  @property\n  def m(self): return 2\ndef f(x): return C()",
        ),
        (
            "class C:\n  @staticmethod\n  def m(): return 1\ndef f(x): return C()",
            "class C:\n  @staticmethod\n  def m(): return 2\ndef f(x): return C()",
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass C:\n  k: int = 1\ndef f(x): return C()",
            "from dataclasses import dataclass\n@dataclass\nclass C:\n  k: int = 2\ndef f(x): return C()",
        ),
        (
            "class C:\n  def m(self): return 1\nc = C()\ndef f(x): return c.m()",
            "class C:\n  def m(self): return 2\nc = C()\ndef f(x): return c.m()",
        ),
        (
            "def make(k):\n  def f(x): return k\n  return f\nf = make(1)",
            "def make(k):\n  def f(x): return k\n  return f\nf = make(2)",
        ),
        (
            "def g(): return 1\nR = {'g': g}\ndef f(x): return R[x]()",
            "def g(): return 2\nR = {'g': g}\ndef f(x): return R[x]()",
        ),
        ("def g(): return 1\nR = {g}\ndef f(x): return R", "def g(): return 2\nR = {g}\ndef f(x): return R"),
        (
            "import functools\n@functools.lru_cache\ndef g(): return 1\ndef f(x): return g()",
            "import functools\n@functools.lru_cache\ndef g(): return 2\ndef f(x): return g()",
        ),
        (
            "import functools\ndef g(a): return 1\nh = functools.partial(g, 1)\ndef f(x): return h()",
            "import functools\ndef g(a): return 2\nh = functools.partial(g, 1)\ndef f(x): return h()",
        ),
        (
            "def d(i):\n  def w(): return i()\n  return w\ndef a(): return 1\ndef b(): return 2\ng, h = "
            "d(a), d(b)\ndef f(x): return g() - h()",
            "def d(i):\n  def w(): return i()\n  return w\ndef a(): return 1\ndef b(): return 2\ng, h = "
            "d(b), d(a)\ndef f(x): return g() - h()",
        ),
        (
            "from flightlog.session.cache.decorator import cacheable\n@cacheable\ndef g(): return 1\ndef "
            "f(x): return g()",
            "from flightlog.session.cache.decorator import cacheable\n@cacheable\ndef g(): return 2\ndef "
            "f(x): return g()",
        ),
        (
            "from flightlog.session.cache.decorator import cacheable\n@cacheable(version=1)\ndef g(): "
            "return 1\ndef f(x): return g()",
            "from flightlog.session.cache.decorator import cacheable\n@cacheable(version=2)\ndef g(): "
            "return 1\ndef f(x): return g()",
        ),
    ],
)
def test_what_the_code_does_and_refers_to_counts(project, one, other):
    first = project(main=one)
    assert project(main=other) != first
    assert project(main=one) == first


@pytest.mark.parametrize(
    "main",
    [
        "import helpers\ndef f(x): return helpers.g(x)",
        "from helpers import g\ndef f(x): return g(x)",
        "def f(x):\n  from helpers import g\n  return g(x)",
        "def f(x):\n  import helpers\n  return helpers.g(x)",
        "import helpers\ndef f(x):\n  h = helpers\n  return h.g(x)",
        "import helpers\ndef f(x): return getattr(helpers, 'g')(x)",
    ],
)
def test_other_modules_of_the_project_count(project, main):
    first = project(main=main, helpers="def g(x): return 1")
    assert project(main=main, helpers="def g(x): return 2") != first


def test_what_a_module_holds_beside_does_not_count(project):
    main = "import helpers\nK = 1\nresults = []\ndef f(x): return helpers.g(x).results"
    first = project(main=main, helpers="def g(x): return 1")
    assert first == project(
        main=main.replace("K = 1", "K = 2").replace("[]", "[1]"),
        helpers="def other(): return 3\ndef g(x): return 1",
    )


def test_a_file_that_is_edited_after_it_was_loaded_does_not_change_the_code_that_runs(project, tmp_path):
    first = project(main="def g(): return 1\ndef f(x): return g()")
    (tmp_path / "main.py").write_text("def g(): return 2\ndef f(x): return g()")
    assert code_digest(sys.modules["main"].f) == first


def test_a_global_that_is_set_anew_counts_at_the_next_call(project):
    first = project(main="K = 1\ndef f(x): return K")
    main = sys.modules["main"]
    main.K = 2
    assert code_digest(main.f) != first
    main.K = 1
    assert code_digest(main.f) == first


def test_what_has_no_value_that_lasts_counts_by_its_class(project):
    sources = [
        f"import threading\nL = threading.{kind}()\ndef f(x): return L" for kind in ("Lock", "Lock", "RLock")
    ]
    first, again, other = (project(main=source) for source in sources)
    assert first == again != other


CACHED = "import functools\n@functools.lru_cache\ndef g(x): return 1\n"
CACHED_METHOD = "import functools\nclass C:\n  @functools.lru_cache\n  def m(self): return 1\n"
LOCKED = (
    "import threading\nclass C:\n  def __init__(self): self.lock, self.k = threading.Lock(), 1\n  def "
    "m(self): return 1\n"
)
DECORATED = (
    "import functools, threading\nclass D:\n  def __init__(self, g, k=1): functools.update_wrapper(self, "
    "g); self.k = k\n"
)


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (CACHED + "T = {'a': g}\ndef f(x): return T['a'](x)", "return 1", "return 2"),
        (CACHED + "def f(x, h=g): return h(x)", "return 1", "return 2"),
        (
            CACHED + "import operator\nh = functools.partial(g, 1)\ndef f(x): return h()",
            "return 1",
            "return 2",
        ),
        (CACHED_METHOD + "def f(x): return C().m()", "return 1", "return 2"),
        (CACHED_METHOD + "c = C()\ndef f(x): return c.m()", "return 1", "return 2"),
        (LOCKED + "c = C()\ndef f(x): return c.k", ", 1", ", 2"),
        (LOCKED + "c = C()\ndef f(x): return c.m()", "return 1", "return 2"),
        (LOCKED + "c = {'c': [C()]}\ndef f(x): return c", ", 1", ", 2"),
        (LOCKED + "c = C()\nc.me = c\nm = c.m\ndef f(x): return m()", ", 1", ", 2"),
        ("import threading\nG = [threading.Lock(), 1]\ndef f(x): return G", ", 1", ", 2"),
        ("import threading\nG = {threading.Lock(), 1}\ndef f(x): return G", ", 1", ", 2"),
        (
            "import threading\nclass C:\n  __slots__ = ('lock', 'k', 'none')\nc = C()\nc.lock, c.k = "
            "threading.Lock(), 1\ndef f(x): return c",
            ", 1",
            ", 2",
        ),
        ("import types\nG = types.MappingProxyType({'a': 1})\ndef f(x): return G", ": 1", ": 2"),
        (
            DECORATED
            + (
                "  def __call__(self, x): return self.__wrapped__(x)\n@D\ndef g(x): return 1\ndef f(x): "
                "return g(x)"
            ),
            "return 1",
            "return 2",
        ),
        (
            DECORATED
            + (
                "  def __call__(self, x): return self.__wrapped__(x)\n@D\ndef g(x): return 1\ndef f(x): "
                "return g(x)"
            ),
            "__(x)",
            "__(x + 1)",
        ),
        (
            DECORATED
            + "  def __call__(self, x): return self.k\n@D\ndef g(x): return 1\ndef f(x): return g(x)",
            "k=1",
            "k=2",
        ),
        (
            DECORATED.replace("; self.k", "; self.lock = threading.Lock(); self.k")
            + "  def __call__(self, x): return self.k\n@D\ndef g(x): return 1\ndef f(x): return g(x)",
            "return 1",
            "return 2",
        ),
        (
            "class C:\n  def __reduce__(self): return 'c'\n  def m(self): return 1\nc = C()\ndef f(x): "
            "return c.m()",
            "return 1",
            "return 2",
        ),
    ],
)
def test_code_and_values_behind_wrappers_and_beside_locks_count(project, source, old, new):
    assert source.count(old) == 1
    first = project(main=source)
    assert project(main=source.replace(old, new)) != first
    assert project(main=source) == first


def test_what_a_decorator_copies_from_its_function_does_not_count(project):
    source = DECORATED + "@D\ndef g(x):\n  'One.'\n  return 1\ndef f(x): return g(x)"
    assert project(main=source) == project(main=source.replace("One", "Two"))


def test_objects_that_all_know_each_other_and_hold_locks_come_to_an_end(project):
    source = (
        LOCKED + "all = [C() for _ in range(40)]\nfor c in all: c.others = list(all)\ndef f(x): return all"
    )
    assert project(main=source) != project(main=source.replace(", 1", ", 2"))


def test_what_a_library_keeps_for_itself_does_not_count(project):
    source = (
        "import weakref\nclass C: pass\nc = C()\nW = weakref.WeakKeyDictionary()\nW[c] = 1\ndef f(x): "
        "return W"
    )
    assert project(main=source) == project(main=source.replace("= 1", "= 2"))


def test_functions_that_call_each_other_and_long_chains_of_calls_come_to_an_end(project):
    ring = "def f(x): return g(x)\ndef g(x): return h(x)\ndef h(x): return f(x) or g(x)"
    assert project(main=ring) != project(main=ring.replace("f(x) or", "f(x) and"))
    chain = "\n".join(f"def f{i}(x): return f{i + 1}(x)" for i in range(3000))
    first = project(main=f"{chain}\ndef f3000(x): return 1\nf = f0")
    assert project(main=f"{chain}\ndef f3000(x): return 2\nf = f0") != first


def test_a_library_counts_by_name_and_version(project, monkeypatch):
    import msgspec

    main = "import msgspec\ndef f(x): return msgspec.json.encode(x)"
    first = project(main=main)
    monkeypatch.setattr(msgspec, "__version__", "99")
    from flightlog.session.digest import origins

    monkeypatch.setattr(origins, "_known", {})
    assert project(main=main) != first


def test_an_import_that_fails_inside_a_function_is_left_to_the_function(project):
    assert project(main="def f(x):\n  import no_such_module\n  return 1") == project(
        main="def f(x):\n  import no_such_module\n  return 1"
    )


PROGRAM = """
import sys
from flightlog.session.digest.code import code_digest
NAMES = {"b", "a", "c"}
def g(): return NAMES & {"x", "y", "z"}
def h(): return g
TABLE = {g, h, len}
class C:
    def m(self): return TABLE
def f(x, c=C()): return c.m(), x in {"p", "q", "r"}
print(code_digest(f).hex())
"""


def test_the_digest_is_the_same_in_every_process_whatever_the_hash_seed_run_or_imported(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    ways = [[str(script)], ["-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import script"]]
    found = set()
    for seed in ("0", "1", "77"):
        for way in ways:
            env = {**os.environ, "PYTHONHASHSEED": seed}
            done = subprocess.run([sys.executable, *way], env=env, capture_output=True, text=True, check=True)
            found.add(done.stdout.strip())
    assert len(found) == 1
    assert len(found.pop()) == 64
