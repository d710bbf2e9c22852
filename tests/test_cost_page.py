"""What the page on costs says is so."""

from __future__ import annotations

import json
import sys

from builders.documents import ROOT, blocks, run_in

from flightlog.analyze.cost.prices import find_price, read_prices
from flightlog.session.schema import Rates, fields_of

PAGE = ROOT / "docs" / "cost.md"


def test_the_page_on_costs_does_what_it_says(tmp_path):
    [manifest] = blocks(PAGE, "yaml")
    program, own = blocks(PAGE, "python")
    report, rates = blocks(PAGE, "bash")
    (tmp_path / "flightlog.yaml").write_text(manifest)
    (tmp_path / "program.py").write_text(program)
    for _ in range(2):
        run_in(tmp_path, sys.executable, "program.py")
    said = run_in(tmp_path, "sh", "-e", "-c", report)
    assert "Expected cost:  €" in said
    assert "Estimated Cost: €" in said
    assert "Useful work" in said
    said = run_in(tmp_path, "sh", "-e", "-c", rates)
    assert "CHF (local provider)" in said
    run_in(tmp_path, sys.executable, "-c", own)
    assert "Estimated Cost: €12.50" in run_in(tmp_path, "flightlog", "report")


def test_its_price_table_is_one(tmp_path):
    [table] = blocks(PAGE, "json")
    file = tmp_path / "prices.json"
    file.write_text(table)
    assert (
        find_price(read_prices(file), "aws/m6i.xlarge").per_hour
        == json.loads(table)["instances"]["aws/m6i.xlarge"]["per_hour"]
    )


def test_it_names_every_key_of_a_cost():
    text = PAGE.read_text()
    assert [field.key for field in fields_of(Rates) if f"`{field.key}`" not in text] == []
