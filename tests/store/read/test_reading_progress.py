"""Who reads notes how far it has come, and forgets it at the end."""

from __future__ import annotations

from builders.runs import at, make_run

from flightlog.events import Metric
from flightlog.store.read.lines import Scan, asked_about, at_work, watched
from flightlog.store.run import Run
from flightlog.store.tables.run_tables import open_streams


def some_run(tmp_path, lines: int):
    return make_run(
        tmp_path, [Metric(timestamp=at(1), name="loss", value=float(n), step=n) for n in range(lines)]
    )


def test_the_share_of_a_streams_events_that_was_read_is_known_while_it_is_read(tmp_path):
    path = some_run(tmp_path, 20_000)
    said = [at_work() for _ in Scan(path, "metrics").events()]
    assert at_work() is None
    shares = [int(text.removesuffix("% of the events in metrics")) for text in said if text]
    assert shares == sorted(shares)
    assert shares[0] < 100


class Busy:
    """A connection in the middle of a query."""

    def __init__(self, percent: float) -> None:
        self.percent = percent

    def execute(self, _statement: str) -> None:
        """Take a setting."""

    def query_progress(self) -> float:
        return self.percent


def always() -> bool:
    return True


def test_a_query_says_how_far_it_is_where_somebody_asks():
    with asked_about(always), watched(Busy(42.7), lambda: ["tasks", "spans"]):
        assert at_work() == "43% of a look through tasks and others"
        with watched(Busy(-1.0), lambda: ["metrics"]):  # between two queries
            assert at_work() == "43% of a look through tasks and others"
    assert at_work() is None


def test_where_nobody_asks_or_asks_any_more_nothing_is_looked_up():
    def looked_up():
        raise AssertionError("nobody wants to know")

    with watched(Busy(42.7), looked_up):
        assert at_work() is None
    with asked_about(lambda: False), watched(Busy(42.7), looked_up):
        assert at_work() is None


def test_what_was_not_read_to_its_end_is_not_told_of_while_something_else_is_read(tmp_path):
    assert next(Scan(some_run(tmp_path, 20_000), "metrics").events())
    with asked_about(always), watched(Busy(42.7), lambda: ["tasks"]):
        assert at_work() == "43% of a look through tasks"


def test_duckdb_keeps_count_of_its_queries_without_a_word(tmp_path, capfd):
    run = Run(some_run(tmp_path, 10))
    with asked_about(always), open_streams([run]) as tables:
        tables.make(["metrics"])
        for setting, value in (("enable_progress_bar", True), ("enable_progress_bar_print", False)):
            found = tables.connection.execute(f"SELECT current_setting('{setting}')").fetchone()
            assert found == (value,)
        assert tables.connection.execute("SELECT count(*) FROM metrics").fetchall() == [(10,)]
        assert tables.connection.query_progress() == -1
        assert at_work() is None
    assert capfd.readouterr() == ("", "")
