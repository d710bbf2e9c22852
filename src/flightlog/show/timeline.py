"""The timeline as text: one row per lane, one column per time step, and the task that took most of it."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_percent
from flightlog.show.figures.style import NAMELESS, OTHER, PALETTE, clock_text, duration_text
from flightlog.show.figures.timeline import MARKS, OTHERS, lane_parts
from flightlog.show.terminal import Ink, brief, fit, pad, width_of, wrap

if TYPE_CHECKING:
    from flightlog.analyze.charts.report_with_charts import TimelineWithSummary
    from flightlog.analyze.charts.results import Timeline

LANES = 40
LABEL = 24
_SHADES = "░▒▓█"
_STEPS = (
    *(unit * step for unit in (1, 60) for step in (1, 2, 5, 10, 15, 30)),
    *(3_600 * step for step in (1, 2, 4, 6, 12)),
    *(86_400 * step for step in (1, 2, 7)),
)
_TOOK = {"completed": "in", "running": "for"}
"""The word between a status and the duration; `after` for runs that ended otherwise."""
_PRECEDENCE = ("failed", "lost", "retried", "cancelled")
"""Of two kinds of marks in one place, the earlier one is drawn."""


def timeline_text(
    look: TimelineWithSummary,
    *,
    width: int = 100,
    lanes: int = LANES,
    color: bool = False,
    ascii_only: bool = False,
) -> str:
    """The answer, the lanes from the top, an axis and a legend; ends in a newline. At most `lanes` rows.

    In colour, shades show how busy a lane was; without, names are letters, small where the lane was busy for
    less than half of the column's time.
    """
    ink, timeline = Ink(color), look.timeline
    lines = [ink("title", line) for line in wrap(headline(look), width)]
    spans = (
        f"Spans{'' if look.summary.tasks.by_name else ' inside of these'} are drawn with --png or --svg only."
    )
    if timeline is None or not timeline.lanes or timeline.length_s <= 0:
        why = ["Nothing ran that was recorded: there is no timeline."]
        if timeline is not None and timeline.outside is not None:
            why = ["No task is drawn.", *timeline.notes, spans]
        lines += ["", *(line for one in why for line in wrap(one, width, first="  ", rest="  "))]
        return "\n".join(lines) + "\n"
    drawn = timeline.lanes[:lanes]
    labels = [named(name, LABEL) + more for name, more in map(lane_parts, drawn)]
    margin = max(map(width_of, labels))
    columns = max(10, width - margin - 4)
    grid = _LaneGrid(timeline, len(drawn), columns, color, ascii_only)
    edge = "|" if ascii_only else "│"
    lines.append("")
    lines += [f"  {pad(label, margin)} {edge}{grid.row(n)}".rstrip() for n, label in enumerate(labels)]
    lines += [f"  {' ' * margin} {row}" for row in _axis(timeline.length_s, columns, ascii_only)]
    lines += ["", *_legend(timeline, grid, width)]
    more = len(timeline.lanes) - len(drawn)
    notes = [
        *([f"{plural(more, 'more lane')} not shown: --png or --svg draws all."] if more else []),
        *timeline.notes,
    ]
    if timeline.nested is not None or timeline.outside is not None:
        notes.append(spans)
    if grid.faint:
        notes.insert(0, grid.shades)
    for note in notes:
        lines += wrap(brief(note, 400), width, first="  ", rest="  ")
    text = "\n".join(lines) + "\n"
    return text.replace("·", "-").replace("…", "...") if ascii_only else text


def named(text: str, limit: int = 60) -> str:
    """A name of the run, on one line; `(no name)` for one of blanks."""
    found = brief(text, limit)
    return found if found.strip() else NAMELESS


def headline(look: TimelineWithSummary) -> str:
    """The outcome in one line: `run-… · completed in 5m 10s · 1,204 attempts on 8 workers, busy 66% of their
    time`.
    """
    run, time, timeline = look.summary.run, look.time, look.timeline
    word = _TOOK.get(run.status, "after")
    took = f" {word} {duration_text(run.duration_s)}" if run.duration_s is not None else ""
    parts = [brief(run.run_id, 80), f"{brief(run.status, 20)}{took}"]
    if timeline is not None and timeline.attempts:
        on = f" on {plural(timeline.workers, 'worker')}" if timeline.workers else ""
        what = (
            plural(timeline.attempts, "attempt")
            if look.summary.tasks.by_name
            else plural(timeline.attempts, "span")
        )
        whose = "its" if timeline.workers == 1 else "their"
        busy = (
            f", busy {format_percent(time.whole.busy_s / time.whole.uptime_s)} of {whose} time"
            if time is not None and time.basis == "workers" and time.whole.uptime_s > 0
            else ""
        )
        parts.append(f"{what}{on}{busy}")
    if timeline is not None and timeline.failures:
        parts.append(f"{timeline.failures:,} failed or retried")
    return " · ".join(parts)


class _LaneGrid:
    """How long each name occupied each lane in each column, and its symbol."""

    def __init__(self, timeline: Timeline, lanes: int, columns: int, color: bool, ascii_only: bool) -> None:
        self._color, self._ascii, self._known = color, ascii_only, len(timeline.names)
        self._columns, self._step = columns, timeline.length_s / columns
        self._held: list[list[dict[int, float]]] = [[{} for _ in range(columns)] for _ in range(lanes)]
        self._marks: dict[tuple[int, int], str] = {}
        self.names: set[int] = set()
        self.faint = False
        """Whether a lane that was drawn was less than busy somewhere."""
        self.kinds: set[str] = set()
        drawn = timeline.bars or timeline.cells
        if drawn is not None:
            busy = timeline.cells.busy if drawn is timeline.cells else [1.0] * len(drawn.lane)
            for one in zip(drawn.lane, drawn.start_s, drawn.length_s, drawn.name, busy, strict=True):
                self._hold(*one)
        for mark in timeline.marks:
            if 0 <= mark.lane < lanes and mark.kind in MARKS:
                place = mark.lane, min(columns - 1, max(0, int(mark.at_s / self._step)))
                before = self._marks.get(place)
                self._marks[place] = min(before or mark.kind, mark.kind, key=_PRECEDENCE.index)
                self.kinds.add(mark.kind)

    def _hold(self, lane: int, start: float, length: float, name: int, busy: float) -> None:
        if not 0 <= lane < len(self._held):
            return
        name = name if 0 <= name < self._known else self._known
        first = min(self._columns - 1, max(0, int(start / self._step)))
        last = min(self._columns - 1, max(first, int((start + length) / self._step)))
        for column in range(first, last + 1):
            left = max(start, column * self._step)
            inside = min(start + length, (column + 1) * self._step) - left
            held = self._held[lane][column]
            # An instant counts for a little: what ran is seen, however short it was.
            held[name] = held.get(name, 0.0) + max(inside, 1e-6 * self._step) * busy
        self.names.add(name)

    def row(self, lane: int) -> str:
        """The lane's text."""
        out, painted = [], ""
        for column, held in enumerate(self._held[lane]):
            kind = self._marks.get((lane, column))
            if kind is not None:
                text, paint = self._mark_sign(kind), MARKS[kind].color
            elif held:
                name = max(held, key=lambda name: (held[name], -name))
                text, paint = self.sign(name, sum(held.values()) / self._step), self.paint(name)
                self.faint |= text != self.sign(name, 1.0)
            else:
                text, paint = " ", painted
            if self._color and paint != painted:
                out.append(_code(paint) if paint else "\x1b[0m")
                painted = paint
            out.append(text)
        return "".join(out).rstrip() + ("\x1b[0m" if painted else "")

    def sign(self, name: int, busy: float) -> str:
        """One character for a name on a lane that was busy for this share of the time."""
        if self._color and not self._ascii:
            return _SHADES[min(3, max(0, int(busy * 4 - 1e-9)))]
        letter = ascii_uppercase[name % 26] if name < self._known else "*"
        return letter if busy >= 0.5 else letter.lower() if letter != "*" else "+"

    @property
    def shades(self) -> str:
        """What fainter signs mean."""
        if self._color and not self._ascii:
            return f"{_SHADES}: from mostly idle to always busy."
        return "Small letters, and + for *: busy for less than half of the stretch."

    def paint(self, name: int) -> str:
        """Its colour."""
        return PALETTE[name % len(PALETTE)] if name < self._known else OTHER

    def key(self, name: int) -> str:
        """The character and the colour of a name, for the legend."""
        return _painted(self.sign(name, 1.0), self.paint(name) if self._color else "")

    def mark(self, kind: str) -> str:
        """The same of a kind of mark."""
        return _painted(self._mark_sign(kind), MARKS[kind].color if self._color else "")

    def _mark_sign(self, kind: str) -> str:
        return MARKS[kind].ascii_sign if self._ascii else MARKS[kind].sign


def _painted(text: str, color: str) -> str:
    return f"{_code(color)}{text}\x1b[0m" if color else text


def _code(color: str) -> str:
    """The nearest of the 216 colours that nearly every terminal has."""
    red, green, blue = (min(5, max(0, round((int(color[at : at + 2], 16) - 55) / 40))) for at in (1, 3, 5))
    return f"\x1b[38;5;{16 + 36 * red + 6 * green + blue}m"


def _axis(length_s: float, columns: int, ascii_only: bool) -> list[str]:
    """A line with ticks, and the time at each."""
    corner, floor, tick = ("+", "-", "+") if ascii_only else ("└", "─", "┴")
    step = _step(length_s, columns)
    line, texts = [floor] * columns, [" "] * (columns + 12)
    number, free = 0, 0
    while number * step <= length_s * 1.0001:
        column = min(columns - 1, round(number * step / length_s * columns))
        text = clock_text(number * step)
        if column >= free and column + len(text) <= columns + 2:
            line[column] = tick
            texts[column : column + len(text)] = text
            free = column + len(text) + 1
        number += 1
    return [f"{corner}{''.join(line)}", f" {''.join(texts).rstrip()}"]


def _step(length_s: float, columns: int) -> float:
    most = max(2, columns // 14)
    steps = (*(base * 10.0**power for power in range(-6, 0) for base in (1, 2, 5)), *_STEPS)
    fitting = next((step for step in steps if length_s / step <= most), None)
    return float(fitting if fitting is not None else length_s / most)


def _legend(timeline: Timeline, grid: _LaneGrid, width: int) -> list[str]:
    entries = [
        (grid.key(name), fit(named(timeline.names[name]), 40) if name < len(timeline.names) else OTHERS)
        for name in sorted(grid.names)
    ]
    entries += [(grid.mark(kind), MARKS[kind].name) for kind in _PRECEDENCE if kind in grid.kinds]
    return _flowing(entries, width)


def _flowing(entries: Sequence[tuple[str, str]], width: int) -> list[str]:
    lines, line, used = [], "", 0
    for key, text in entries:
        size = 4 + width_of(text)
        if line and used + size > width - 2:
            lines.append(line)
            line, used = "", 0
        line += f"  {key} {text}"
        used += size
    return [*lines, line] if line else lines
