from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from builders.runs import make_run

from flightlog.cli.main import main


def test_metrics_are_served_until_ctrl_c(tmp_path: Path) -> None:
    make_run(tmp_path, [])
    command = [sys.executable, "-m", "flightlog", "serve-metrics", "--port", "0", "--runs-dir", str(tmp_path)]
    with subprocess.Popen([*command, "--recent", "9999d"], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            found = re.fullmatch(
                rf"flightlog: serving metrics of the runs in {tmp_path} at "
                r"(http://127\.0\.0\.1:\d+/metrics); "
                r"Ctrl-C ends it\n",
                said,
            )
            assert found, said
            with urllib.request.urlopen(found[1]) as answer:
                assert 'flightlog_run_info{host="node-1",project="demo"' in answer.read().decode()
            server.send_signal(signal.SIGINT)
            assert (server.wait(30), server.stderr.read()) == (130, "")
        finally:
            server.kill()


def test_what_makes_no_sense_is_said_in_a_line(tmp_path: Path, capsys) -> None:
    assert main(["serve-metrics", "--runs-dir", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err == f"flightlog: there is no folder {tmp_path / 'missing'}\n"
    assert main(["serve-metrics", "--runs-dir", "nosuch://bucket/runs"]) != 0
    said = capsys.readouterr().err
    assert said.startswith("flightlog: ")
    assert (said.count("\n"), "nosuch" in said) == (1, True)
    assert main(["serve-metrics", "--runs-dir", str(tmp_path), "--recent", "soon"]) == 2
    assert "soon" in capsys.readouterr().err
    assert main(["serve-metrics", "--runs-dir", str(tmp_path), "--port", "99999"]) == 2
    assert capsys.readouterr().err == "flightlog: --port 99999 is no port: 0 to 65535\n"
    assert main(["serve-metrics", "--runs-dir", str(tmp_path), "--host", "no.such.host.invalid"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("flightlog: cannot serve metrics at no.such.host.invalid port 9464: ")
    assert "another --port" not in said


def test_without_the_library_the_message_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from flightlog.cli.main import main\n"
        f"sys.exit(main(['serve-metrics', '--runs-dir', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'flightlog[prometheus]'\n")
