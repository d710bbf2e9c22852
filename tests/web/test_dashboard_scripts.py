"""The scripts of a run's page come from the dashboard itself, and through its door."""

from __future__ import annotations

import re
from typing import Any

from builders.runs import make_run
from viewing import look

RUN = "run-20260520T035200Z-demo-a1b2c3d4"
TOKEN = "a-token-that-is-long-enough"


def test_every_script_of_the_page_is_served_with_the_token_and_refused_without(tmp_path):
    make_run(tmp_path)

    async def doing(client: Any, _: Any) -> Any:
        known = {"authorization": f"Bearer {TOKEN}"}
        page = (await client.get(f"/run/{RUN}", headers=known)).text
        found = re.findall(r'from "(/_nicegui/[^"]+/components/[^"]+/(run_\w+)\.js)"', page)
        scripts = {name: path for path, name in found}
        answers = {name: await client.get(path, headers=known) for name, path in scripts.items()}
        refused = {name: (await client.get(path)).status_code for name, path in scripts.items()}
        others = re.findall(r"(?:src|href)=\"(https?:)?//", page)
        return {name: (one.status_code, one.text[:2]) for name, one in answers.items()}, refused, others

    found, refused, others = look(tmp_path, doing, token=TOKEN)
    names = ("run_head", "run_table", "run_feed", "run_figure")
    assert found == dict.fromkeys(names, (200, "//"))
    assert (refused, others) == (dict.fromkeys(names, 401), [])
