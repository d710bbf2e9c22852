from __future__ import annotations

from pathlib import Path

import pytest

from flightlog.cli.main import COMMANDS
from flightlog.cli.reference import command_page, pages, write_pages

DOCS = Path(__file__).parents[2] / "docs"


def test_every_command_has_a_page_that_ends_in_its_help() -> None:
    for name in COMMANDS:
        page = command_page(name)
        assert page.startswith(f"# flightlog {name}\n\n")
        assert f"Usage: flightlog {name} [OPTIONS]" in page
        assert page.endswith("Show this message and exit.\n```\n")


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_checked_in_page_is_the_generated_one(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run `make docs`"


def test_pages_are_written_with_their_folders(tmp_path: Path) -> None:
    write_pages(tmp_path / "docs")
    written = {str(file.relative_to(tmp_path / "docs")) for file in tmp_path.rglob("*.md")}
    assert written == set(pages())
