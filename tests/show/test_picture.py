"""Pictures of figures: drawn without a browser, the same bytes each time, and whatever a run's names hold."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import drawn_values as values
import pytest

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.show.figures import style
from flightlog.show.figures.timeline import timeline_figure
from flightlog.show.picture import picture, plan, ticks_with_room

FIGURES = values.every_figure()


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_becomes_a_picture_with_a_plot_as_high_as_the_figure_has(name: str):
    layout = FIGURES[name].layout
    width, height = size_of(picture(FIGURES[name], width_px=800, scale=1))
    assert width == 800
    assert height >= layout.height - layout.margin.t - layout.margin.b


def test_a_picture_is_as_large_as_asked():
    assert size_of(picture(FIGURES["timeline"], width_px=600, height_px=400, scale=1.5)) == (900, 600)


def test_the_same_figure_gives_the_same_bytes():
    assert picture(FIGURES["timeline"]) == picture(FIGURES["timeline"])
    svg = picture(FIGURES["timeline"], format="svg")
    assert svg == picture(FIGURES["timeline"], format="svg")
    assert b"dc:date" not in svg


def test_an_svg_brings_its_letters_along_and_asks_for_nothing():
    root = ElementTree.fromstring(picture(FIGURES["memory"], format="svg"))
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "text" not in kinds
    links = [
        value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")
    ]
    assert all(link.startswith("#") for link in links)


def test_a_dense_timeline_is_a_picture_inside_of_the_svg():
    root = ElementTree.fromstring(picture(FIGURES["dense"], format="svg"))
    links = [
        value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")
    ]
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)


def test_bars_are_where_the_figure_has_them():
    from io import BytesIO

    from PIL import Image

    found = Image.open(BytesIO(picture(FIGURES["timeline"], width_px=800, scale=1))).convert("RGB")
    seen = {count_color[1] for count_color in found.getcolors(1 << 20) or []}
    assert {(0x00, 0x72, 0xB2), (0xDD, 0x77, 0x00), (0xD6, 0x27, 0x28), (255, 255, 255)} <= seen


def test_a_dark_figure_has_a_dark_ground():
    from io import BytesIO

    from PIL import Image

    dark = style.with_theme(timeline_figure(values.timeline()), "dark")
    assert Image.open(BytesIO(picture(dark, scale=1))).convert("RGB").getpixel((0, 0)) == (0x11, 0x11, 0x11)


@pytest.mark.parametrize(
    "name",
    ["$\\frac{1}{", "模拟 симуляция 🚀", "<b>&amp;</b>", "\x1b[31m\n", "a" * 10_000, "", "_^{}"],
    ids=["math", "scripts", "markup", "controls", "long", "empty", "signs"],
)
def test_any_name_can_be_drawn(name: str):
    figure = timeline_figure(
        values.timeline(names=[name, "x"], lanes=values.lanes(name, name), notes=[name]), title=name
    )
    assert size_of(picture(figure, width_px=800, scale=1))[0] == 800
    assert picture(figure, format="svg").startswith(b"<?xml")


def test_settings_of_the_user_neither_change_a_picture_nor_are_changed():
    import matplotlib

    before = picture(FIGURES["memory"], scale=1)
    with matplotlib.rc_context(
        {"axes.facecolor": "red", "font.size": 30, "text.color": "green", "axes.grid": True}
    ):
        assert picture(FIGURES["memory"], scale=1) == before
        assert matplotlib.rcParams["font.size"] == 30


def test_no_window_and_no_state_of_pyplot_is_touched():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import drawn_values as values;"
        "from flightlog.show.figures.timeline import timeline_figure;"
        "from flightlog.show.picture import picture;"
        "picture(timeline_figure(values.timeline())); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install flightlog\[picture\]"):
        picture(FIGURES["timeline"])


def test_a_narrow_picture_is_higher_as_its_texts_wrap():
    noted = timeline_figure(
        values.timeline(
            names=["a name of some length", "another of that kind"], notes=["a note of five words"] * 3
        ),
        title="a title of many words " * 5,
    )
    wide, narrow = (size_of(picture(noted, width_px=width, scale=1))[1] for width in (1200, 400))
    title, legend = (3, 1), (3, 1)  # lines on the narrow and on the wide sheet; no note has a second one
    assert narrow - wide == 18 * (title[0] - title[1] + legend[0] - legend[1])


def test_texts_of_ticks_that_would_lie_over_each_other_are_left_out():
    dates = [f"2026-05-{day:02d}" for day in range(1, 9)]
    assert ticks_with_room(list(range(8)), dates, 0, 7, 1000) == (list(range(8)), dates)
    assert ticks_with_room(list(range(8)), dates, 0, 7, 300) == ([0, 2, 4, 6], dates[::2])


def test_names_of_the_legend_are_cut_to_the_width_of_the_picture():
    long = timeline_figure(values.timeline(names=["n" * 60, "x"]))
    found = plan(long.to_dict()["data"], long.to_dict()["layout"], 300)
    assert found.legend == [f"{'n' * 29}…", "x", "failed"]
    assert found.columns == 1


def test_a_height_without_room_for_the_texts_is_refused_and_the_message_says_what_is_needed():
    many = values.timeline(lanes=values.lanes(*(f"worker-{n}" for n in range(60))), notes=["a note"] * 5)
    with pytest.raises(UsageError, match="name one from 238 to 10,000"):
        picture(timeline_figure(many), height_px=150)


@pytest.mark.parametrize("size", [(299, 500), (500, 99), (15_000, 500), (500, 15_000), (-1, 500)])
def test_a_size_no_picture_has_is_refused(size: tuple[int, int]):
    with pytest.raises(UsageError, match="is no size for this picture"):
        picture(FIGURES["timeline"], width_px=size[0], height_px=size[1])
