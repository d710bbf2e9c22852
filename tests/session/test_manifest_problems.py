"""Everything that is wrong with a manifest, said at once."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import ManifestError
from flightlog.session.limits import SessionLimits
from flightlog.session.manifest import parse_manifest
from flightlog.session.validation import parse_duration

HEAD = "version: 1\nproject: {name: a}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as error:
        parse_manifest(text, Path("flightlog.yaml"))
    return list(error.value.problems)


def test_all_problems_are_listed_with_line_path_what_was_found_and_what_was_meant() -> None:
    text = """\
verson: 1
project: {nam: x}
targets:
  a: {provider: loca, max_worker: 3}
  b: {provider: local, max_worker: 3, processes: "yes", overlay: bg}
  c: {provider: local, max_workers: 0}
  d: {provider: 7z}
components:
  model:
    cpus: two
    memory: 16 Gigs
    walltime: 2 hours
    image: [a]
    gpus: -1
    colour: red
  modal: 3
tasks:
  s: {component: modle, cache: maybe, retries: 1.5, timeout: 30, outputs: a.csv}
  t: {cache: {tll: 1d}, retries: "2", timeout: "${T"}
  u: {component: other}
overlays:
  big: {component: {}, components: {model: {memry: 3, cpus: 0}}}
  gone: {components: null}
  odd: [1]
"""
    assert (
        "\n".join(problems(text))
        == """\
flightlog.yaml:1: verson: 'verson' is no key; did you mean 'version'?
flightlog.yaml:1: version: is missing; write `version: 1`
flightlog.yaml:2: project.nam: 'nam' is no key; did you mean 'name'?
flightlog.yaml:2: project.name: is missing
flightlog.yaml:4: targets.a.provider: there is no provider 'loca'; did you mean 'local'?
flightlog.yaml:5: targets.b.max_worker: 'max_worker' is no key of the provider 'local'; did you \
mean 'max_workers'?
flightlog.yaml:5: targets.b.processes: 'yes' is text: write yes without quotes
flightlog.yaml:5: targets.b.overlay: there is no overlay 'bg'; did you mean 'big'?
flightlog.yaml:6: targets.c.max_workers: '0' is less than 1
flightlog.yaml:7: targets.d.provider: there is no provider '7z'; known are local, dask, slurm, ray, dragon
flightlog.yaml:10: components.model.cpus: 'two' is no number
flightlog.yaml:11: components.model.memory: '16 Gigs' is no size: write it as '512MiB', '16G' (both \
in 1024s) or \
'16GB' (in 1000s); did you mean '16GB'?
flightlog.yaml:12: components.model.walltime: '2 hours' is no duration: write it as '45s', '90m', \
'1h 30m' or \
'01:30:00'; did you mean '2h'?
flightlog.yaml:13: components.model.image: a single value is wanted, and a list was found
flightlog.yaml:14: components.model.gpus: '-1' is less than 0
flightlog.yaml:15: components.model.colour: 'colour' is no key; known are cpus, memory, gpus, \
walltime, image, \
runtime, env, mounts, tags, preload_script
flightlog.yaml:16: components.modal: '3' is no mapping of keys to values
flightlog.yaml:18: tasks.s.cache: 'maybe' is neither true nor false
flightlog.yaml:18: tasks.s.retries: '1.5' is no whole number
flightlog.yaml:18: tasks.s.timeout: '30' is no duration: write it as '45s', '90m', '1h 30m' or \
'01:30:00'; did you \
mean '30s'?
flightlog.yaml:18: tasks.s.outputs: 'a.csv' is no list; write [a.csv]
flightlog.yaml:18: tasks.s.component: there is no component 'modle'; did you mean 'model'?
flightlog.yaml:19: tasks.t.cache.tll: 'tll' is no key; did you mean 'ttl'?
flightlog.yaml:19: tasks.t.retries: '2' is text: write 2 without quotes
flightlog.yaml:19: tasks.t.timeout: '${T' is no variable: write ${NAME} or ${NAME:-default}, and $$ for $
flightlog.yaml:20: tasks.u.component: there is no component 'other'; known are model, modal
flightlog.yaml:22: overlays.big.component: 'component' is no key of an overlay; did you mean 'components'?
flightlog.yaml:22: overlays.big.components.model.memry: 'memry' is no key; did you mean 'memory'?
flightlog.yaml:22: overlays.big.components.model.cpus: '0' is not more than 0
flightlog.yaml:24: overlays.odd: '[1]' is no mapping of keys to values"""
    )


def test_what_an_overlay_breaks_is_said_with_its_name() -> None:
    text = (
        HEAD + "components: {m: {}}\ntasks: {s: {component: m}}\noverlays: {gone: {components: {m: null}}}\n"
    )
    assert problems(text) == [
        "flightlog.yaml:4: tasks.s.component: there is no component 'm'; there are no components (with "
        "overlay 'gone')"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["flightlog.yaml: is empty; it needs at least `version: 1` and `project`"]),
        ("# nothing\n", ["flightlog.yaml: is empty; it needs at least `version: 1` and `project`"]),
        ("- a\n", ["flightlog.yaml:1: a manifest is a mapping of keys to values"]),
        (
            "a: [1\nb: 2\n",
            [
                "flightlog.yaml:2: is not YAML: while parsing a flow sequence, expected ',' or ']', but "
                "got ':'"
            ],
        ),
        (
            HEAD + "project: {name: b}\n",
            ["flightlog.yaml:3: the key 'project' stands twice, first in line 2"],
        ),
        (
            HEAD + "x: !!python/object:os.system {}\n",
            [
                "flightlog.yaml:3: the tag '!!python/object:os.system' is not allowed: a manifest is plain "
                "data"
            ],
        ),
        (HEAD + "? [a]\n: 1\n", ["flightlog.yaml:3: a key is a word, not a list or a mapping"]),
        (HEAD + "tasks: &t {a: *t}\n", ["flightlog.yaml:3: an alias stands inside what it stands for"]),
        (HEAD + "tasks: {<<: 3}\n", ["flightlog.yaml:3: `<<` merges mappings, and this is none"]),
        (
            HEAD + "--- {}\n",
            [
                "flightlog.yaml:3: is not YAML: expected a single document in the stream, but found "
                "another document"
            ],
        ),
        (
            HEAD + "a: b\0\n",
            [
                "flightlog.yaml: is not YAML: unacceptable character #x0000: special characters are not "
                'allowed in "<unicode string>", position 34'
            ],
        ),
        (
            "version: 2\nproject: {name: a}\n",
            ["flightlog.yaml:1: version: '2' is a version this Flightlog does not know; write 1"],
        ),
        ("version: 1\nproject: {name: ' '}\n", ["flightlog.yaml:2: project.name: ' ' is blank"]),
        (
            HEAD + "targets: {p: {provider: dragon, policy: blok}}\n",
            ["flightlog.yaml:3: targets.p.policy: 'blok' is none of block, spread; did you mean 'block'?"],
        ),
    ],
)
def test_a_file_that_is_no_manifest_says_why(text: str, said: list[str]) -> None:
    assert problems(text) == said


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert problems("\n".join(levels)) == [
        f"flightlog.yaml: holds more than {SessionLimits.max_manifest_values:,} values, "
        "aliases counted in full"
    ]


def test_deep_nesting_is_refused() -> None:
    assert problems("a: " + "[" * 100 + "]" * 100)[0] == (
        "flightlog.yaml:1: is nested too deeply; 50 levels are the most"
    )
    assert problems("[" * 20_000) == ["flightlog.yaml: is nested too deeply; 50 levels are the most"]


def test_the_error_survives_pickling() -> None:
    error = ManifestError(["a", "b"])
    assert pickle.loads(pickle.dumps(error)).problems == ("a", "b")
    assert str(error) == "a\nb"


@given(st.text(max_size=200))
def test_any_text_is_a_manifest_or_a_manifest_error(text: str) -> None:
    found: tuple[str, ...] = ()
    try:
        parse_manifest(HEAD + text, Path("flightlog.yaml"))
    except ManifestError as error:
        found = error.problems
    assert [problem for problem in found if not problem.startswith("flightlog.yaml:")] == []


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_clock_durations_are_days_hours_minutes_seconds(d: int, h: int, m: int, s: int) -> None:
    assert parse_duration(f"{d}-{h:02}:{m:02}:{s:02}") == d * 86400 + h * 3600 + m * 60 + s
    assert parse_duration(f"{h}:{m:02}:{s:02}") == h * 3600 + m * 60 + s
