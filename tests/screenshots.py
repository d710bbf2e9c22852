"""Pictures of every page, made in Chromium: `python -m tests.screenshots [NAME…]`, which `make screenshots`
runs.

The two of the README go to `docs/pictures`, all others to `build/pictures`, to be looked at. Each is below
300 kB.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "system"), str(HERE)]

from browsing import PHONE, WIDE, chromium, visit  # noqa: E402 - the folder of system tests is named above
from dashboard_server import Served, dashboard  # noqa: E402
from runs_to_look_at import LARGE, Living, RunsToLookAt, flightlog, runs_to_look_at, write_large  # noqa: E402

README, LOOKED_AT = HERE.parent / "docs" / "pictures", HERE.parent / "build" / "pictures"
LARGEST_BYTES = 300_000
TALLEST = 7000
PATIENCE_MS = 180_000
SHOWCASE = HERE / "system" / "showcase_program.py"
FEW = 1000
"""Tasks of the large run where no picture shows it."""
HOST = "node-1"
"""What the machine is called in the README's pictures."""


@dataclass(frozen=True)
class World:
    """What pictures are taken of: the runs, pages of them in a folder, and a dashboard."""

    runs: RunsToLookAt
    folder: Path
    ensemble: Living
    """A sweep of three kinds of tasks, a third done; a picture of it as it goes on has to be the first
    one."""
    served: Served
    browser: Any

    def report(self, kind: str) -> str:
        """The address of the report on one of the six runs, or on an ensemble that nobody held."""
        run = self._run(kind)
        if kind == "ensemble":
            fresh = Living(self.runs.runs_dir, "ensemble", SHOWCASE, host=HOST)
            fresh.stop()
            run = fresh.path
        return self._page(kind, "report", str(run))

    def compared(self) -> str:
        return self._page("compared", "compare", str(self.runs.before), str(self.runs.demo))

    def _page(self, name: str, *words: str) -> str:
        file = self.folder / f"{name}.html"
        if not file.exists():
            flightlog(*words, "--format", "html", "--output", file)
        return file.as_uri()

    def run_page(self, kind: str) -> str:
        """The address of a run in the dashboard."""
        from flightlog.web.dashboard import key_of

        return f"{self.served.address}/run/{key_of(self._run(kind))}"

    def _run(self, kind: str) -> Path:
        return self.ensemble.path if kind == "ensemble" else self.runs.each()[kind]


def report(
    kind: str, *, size: tuple[int, int] = WIDE, dark: bool = False, whole: bool = True
) -> Callable[[World], bytes]:
    """A picture of the report on a run; without `whole`, of what a window shows of it."""
    return lambda world: of_page(world.browser, world.report(kind), size=size, dark=dark, whole=whole)


def of_page(
    browser: Any, address: str, *, size: tuple[int, int] = WIDE, dark: bool = False, whole: bool = True
) -> bytes:
    """A page from a file, all of its figures drawn, down to `TALLEST` pixels."""
    with visit(browser, address, size=size, dark=dark, offline=True) as seen:
        places = seen.page.locator("[data-figure]")
        for number in range(places.count()):
            if places.nth(number).is_visible():
                places.nth(number).scroll_into_view_if_needed()
                seen.page.wait_for_timeout(150)
        seen.page.evaluate("scrollTo(0, 0)")
        seen.page.wait_for_timeout(500)
        return picture(seen.page, size, whole)


def of_dashboard(
    path: Callable[[World], str],
    ready: str,
    *,
    size: tuple[int, int] = WIDE,
    dark: bool = False,
    whole: bool = True,
    settle_ms: int = 4000,
    held: bool = False,
) -> Callable[[World], bytes]:
    """A page of the dashboard, once `ready` is there and a few updates have come; the ensemble may be held
    till it is."""

    def take(world: World) -> bytes:
        with ExitStack() as still, visit(world.browser, "about:blank", size=size, dark=dark) as seen:
            if held:
                still.enter_context(world.ensemble.held())
            seen.page.goto(path(world))
            seen.page.wait_for_selector(ready, timeout=PATIENCE_MS)
            still.close()
            seen.page.wait_for_timeout(settle_ms)
            return picture(seen.page, size, whole)

    return take


def picture(page: Any, size: tuple[int, int], whole: bool) -> bytes:
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight")) if whole else size[1]
    clip = {"x": 0, "y": 0, "width": size[0], "height": height}
    taken: bytes = page.screenshot(full_page=True, clip=clip)
    return taken


def top(world: World) -> bytes:
    """The terminal's live view; Textual draws it as SVG, and Chromium makes a picture of that."""
    svg = re.sub(r"@font-face\s*{.*?}", "", (world.folder / "top.svg").read_text(), flags=re.DOTALL)
    file = world.folder / "top.html"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><body style='margin:0'>{svg}</body>")
    with visit(world.browser, file.as_uri(), offline=True) as seen:
        taken: bytes = seen.page.locator("svg").first.screenshot()
        return taken


async def draw_top(run: Path, file: Path) -> None:
    from flightlog.analyze.live.follow import FollowedRun
    from flightlog.store.catalogue import list_runs
    from flightlog.tui.app import TopApp

    app = TopApp(run, open_live=FollowedRun, runs=lambda: list_runs(run.parent))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause(4.0)  # a few looks at the run
        file.write_text(app.export_screenshot(title="flightlog top"))


PICTURES: dict[str, Callable[[World], bytes]] = {
    "dashboard": of_dashboard(
        lambda world: world.run_page("ensemble"),
        "main svg.main-svg",
        size=(1280, 1200),
        whole=False,
        held=True,
    ),
    "report": report("ensemble", size=(1280, 1200), whole=False),
    "report-demo": report("demo"),
    "report-demo-dark": report("demo", dark=True),
    "report-demo-phone": report("demo", size=PHONE),
    "report-large": report("large"),
    "report-empty": report("empty"),
    "report-written": report("written"),
    "report-killed": report("killed"),
    "report-hostile": report("hostile"),
    "report-hostile-phone": report("hostile", size=PHONE),
    "compare": lambda world: of_page(world.browser, world.compared()),
    "compare-dark": lambda world: of_page(world.browser, world.compared(), dark=True),
    "dashboard-list": of_dashboard(lambda world: f"{world.served.address}/", "tr[data-run]"),
    "dashboard-list-phone": of_dashboard(
        lambda world: f"{world.served.address}/", "tr[data-run]", size=PHONE, dark=True
    ),
    "dashboard-live": of_dashboard(
        lambda world: world.run_page("written"), "main svg.main-svg", settle_ms=8000
    ),
    "dashboard-live-dark": of_dashboard(
        lambda world: world.run_page("written"), "main svg.main-svg", dark=True
    ),
    "dashboard-live-phone": of_dashboard(
        lambda world: world.run_page("written"), "main svg.main-svg", size=PHONE
    ),
    "dashboard-large": of_dashboard(
        lambda world: world.run_page("large"), "main svg.main-svg", settle_ms=30_000
    ),
    "dashboard-killed": of_dashboard(lambda world: world.run_page("killed"), "main svg.main-svg"),
    "dashboard-empty": of_dashboard(lambda world: world.run_page("empty"), "[data-path]"),
    "dashboard-hostile": of_dashboard(lambda world: world.run_page("hostile"), "[data-path]"),
    "diagnosis": of_dashboard(lambda world: f"{world.run_page('killed')}/diagnosis", "main .fl-card"),
    "advice": of_dashboard(lambda world: f"{world.run_page('demo')}/advice", "main .fl-card"),
    "trends": of_dashboard(
        lambda world: f"{world.served.address}/trends?project=sir-demo", "main svg.main-svg"
    ),
    "top": top,
}
IN_README = {"report", "dashboard"}


def small(png: bytes, limit: int = LARGEST_BYTES) -> bytes:
    """The picture with 256 colours, and smaller while it is still larger than the limit."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    while True:
        out = io.BytesIO()
        image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            out, "PNG", optimize=True
        )
        if out.tell() <= limit:
            return out.getvalue()
        image = image.resize((image.width * 4 // 5, image.height * 4 // 5), Image.Resampling.LANCZOS)


def main(names: list[str]) -> int:
    """Take the pictures that are named, or all; says of each where it is, and gives how many could not be
    taken."""
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        raise SystemExit(f"there is no picture {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    for folder in (README, LOOKED_AT):
        folder.mkdir(parents=True, exist_ok=True)
    missed = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "pages"
        folder.mkdir()
        seen = not names or any("large" in name for name in names)
        large = write_large(Path(made) / "large", LARGE if seen else FEW)
        with runs_to_look_at(Path(made) / "looked-at", large) as runs:
            runs.living.tell("fail")
            runs.living.tell("hang")
            if not names or "top" in names:
                asyncio.run(draw_top(runs.written, folder / "top.svg"))
            with dashboard(runs.runs_dir, "--no-token") as served, chromium() as browser:
                ensemble = Living(runs.runs_dir, "ensemble", SHOWCASE, host=HOST)
                world = World(runs, folder, ensemble, served, browser)
                for name in sorted(names, key=[*PICTURES].index) or PICTURES:
                    file = (README if name in IN_README else LOOKED_AT) / f"{name}.png"
                    try:
                        file.write_bytes(small(PICTURES[name](world)))
                    except Exception as error:  # the others can still be taken
                        missed += 1
                        print(f"{name}: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr)
                    else:
                        print(f"{file.relative_to(HERE.parent)}: {file.stat().st_size:,} bytes", flush=True)
                ensemble.stop()
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
