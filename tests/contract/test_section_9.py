"""Contract, section 9: command line."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from contract.kit import ROOT, ask, closed_port, fresh, get, packhorse, text_reply, until
from support.texts import lines


def served(*arguments: str, environment: dict[str, str] | None = None, cwd: str | None = None):
    env = {key: value for key, value in os.environ.items() if not key.startswith("PACKHORSE_")}
    env |= {"PYTHONPATH": str(ROOT), **(environment or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        env=env,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process) -> None:
    process.kill()
    process.communicate()


def test_serve_without_a_file(up):
    """`packhorse serve [--upstream URL] [--listen ADDR]`: the gateway; without a file: chat paths are chat routes, the rest prepare, memory store"""
    port, admin = closed_port(), closed_port()
    with tempfile.TemporaryDirectory() as folder:
        process = served(
            "serve", "--upstream", up.url, "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}", cwd=folder
        )
        try:

            def there() -> bool:
                try:
                    return get(admin, "/readyz").status == 200
                except OSError:
                    return False

            until(there, 20)
            path = up.at(fresh(), text_reply("fine"))
            assert get(port, path).body == b"fine"
            for chat in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
                up.at(chat, text_reply("fine"))
                assert ask(port, "POST", chat, [], b"{}").status == 200
            time.sleep(0.1)
            page = get(admin, "/metrics").body.decode()
            routes = set(re.findall(r'packhorse_requests_total\{[^}]*route="([^"]+)"', page))
            assert len(routes) >= 3, routes
            assert 'store="memory"' in page
            assert list(Path(folder).iterdir()) == [], "a memory store leaves nothing"
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            ended(process)


def test_serve_with_port_0_prints_its_ports(up):
    """ports are printed"""
    process = served("serve", "--upstream", up.url, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    try:
        assert process.stdout is not None
        line = ""
        while "127.0.0.1:" not in line:
            line = process.stdout.readline()
            assert line
        ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", line)]
        assert len(ports) == 2
        assert get(ports[1], "/readyz").status == 200
        assert get(ports[0], up.at(fresh(), text_reply("fine"))).body == b"fine"
    finally:
        ended(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_exit_0_when_told_to_stop(up, number):
    """Exit 0 done"""
    process = served("serve", "--upstream", up.url, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    try:
        assert process.stdout is not None
        while "serving" not in (line := process.stdout.readline()):
            assert line
        process.send_signal(number)
        assert process.wait(15) == 0
    finally:
        ended(process)


def test_exit_1_where_it_cannot_listen(up, gw):
    """Exit ... 1 failed (ports taken: a clear message)"""
    done = packhorse("serve", "--upstream", up.url, "--listen", f"127.0.0.1:{gw.port}", "--admin-listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert str(gw.port) in done.stderr
    assert "Traceback" not in done.stderr


MISUSE = [
    (), ("nonsense",), ("serve", "--nonsense"), ("serve",), ("serve", "--config", "/nonexistent.yaml"), ("serve", "--upstream", "nonsense"),
    ("serve", "--upstream", "ftp://x"), ("check-config",), ("check-config", "/nonexistent.yaml"), ("show-config", "--config", "/nonexistent"),
    ("replay",), ("serve", "--upstream", "http://127.0.0.1:1", "--listen", "nonsense"), ("serve", "--upstream", "http://h:1", "--listen", "h:99999"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", MISUSE, ids=" ".join)
def test_exit_2_misuse(arguments, tmp_path):
    """Exit ... 2 misuse"""
    done = packhorse(*arguments, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_version():
    """Every command says what it does, and exits 0."""
    assert packhorse("--help").returncode == 0
    assert re.search(r"\d+\.\d+", packhorse("--version").stdout)
    for command in ("serve", "check-config", "show-config", "doctor", "sample-upstream", "replay"):
        done = packhorse(command, "--help")
        assert done.returncode == 0
        assert command in done.stdout


def config(tmp_path, document, file: str = "c.yaml") -> str:
    path = tmp_path / file
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


GOOD = {"routes": [{"name": "r", "match": "/", "upstream": "http://127.0.0.1:9000"}]}


def test_check_config(tmp_path):
    """`packhorse check-config FILE`: exit 0, or 2 with the key and what was expected"""
    assert packhorse("check-config", config(tmp_path, GOOD)).returncode == 0
    done = packhorse("check-config", config(tmp_path, {**GOOD, "deltas": {"min_bytes": "many"}}))
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert "deltas.min_bytes" in said
    assert "size" in said.lower() or "bytes" in said


def test_show_config(tmp_path):
    """`packhorse show-config [--config FILE]`: effective settings, secrets hidden"""
    document = {
        **GOOD,
        "admin": {"listen": "127.0.0.1:8099", "token": "SECRET-admin-token"},
        "access": {"keys": [{"name": "alice", "key": "SECRET-key-of-alice-1234"}]},
        "deltas": {"min_bytes": "1KiB"},
    }
    document["routes"][0]["upstream"] = "http://user:SECRETpw@127.0.0.1:9000/x?key=SECRETquery"
    for arguments in ((), ("--json",)):
        done = packhorse("show-config", "--config", config(tmp_path, document), *arguments)
        if done.returncode == 2:  # an upstream with a password is refused altogether: then the rest must do
            assert "SECRET" not in done.stdout + done.stderr
            document["routes"][0]["upstream"] = "http://127.0.0.1:9000/x"
            done = packhorse("show-config", "--config", config(tmp_path, document), *arguments)
        assert done.returncode == 0, done.stderr
        assert "SECRET" not in done.stdout + done.stderr
        assert "alice" in done.stdout
        assert "127.0.0.1:8099" in done.stdout
        assert "1KiB" in done.stdout or "1024" in done.stdout
    settings = json.loads(packhorse("show-config", "--config", config(tmp_path, document), "--json").stdout)
    settings = settings.get("settings", settings)
    assert settings["bases"]["keep"] == 4, "defaults are shown, too"


def test_show_config_without_a_file():
    """`packhorse show-config [--config FILE]` effective settings; without a file: the defaults"""
    done = packhorse("show-config", "--upstream", "http://127.0.0.1:9000")
    assert done.returncode == 0
    assert "metered" in done.stdout


def test_doctor(tmp_path, up):
    """`packhorse doctor [--config FILE]`: probes routes, store and codings; says what is degraded"""
    document = {
        "listen": f"127.0.0.1:{closed_port()}", "admin": {"listen": f"127.0.0.1:{closed_port()}"},
        "routes": [{"name": "r", "match": "/", "upstream": up.url}],
    }  # fmt: skip
    done = packhorse("doctor", "--config", config(tmp_path, document), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document["routes"] = [{"name": "gone", "match": "/", "upstream": f"http://127.0.0.1:{closed_port()}"}]
    for arguments in ((), ("--json",)):
        done = packhorse("doctor", "--config", config(tmp_path, document), *arguments, cwd=tmp_path)
        assert done.returncode == 1, done.stdout
        assert "gone" in done.stdout
    json.loads(done.stdout)


def test_sample_upstream_and_replay(tmp_path):
    """`packhorse sample-upstream [--listen ADDR]` | `packhorse replay FILE|DIR [--via URL]`: ... table of bytes | `--json` where a table is printed"""
    file = tmp_path / "minutes.txt"
    file.write_text("\n\n".join(lines(3, seed) for seed in range(60)))
    done = packhorse("replay", str(file), "--turns", "5", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told
    done = packhorse("replay", str(file), "--turns", "5")
    assert done.returncode == 0
    assert "gzip" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr, "plain lines where there is no terminal"
    port, where, admin = closed_port(), closed_port(), closed_port()
    sample = served("sample-upstream", "--listen", f"127.0.0.1:{port}")
    try:

        def there() -> bool:
            try:
                return get(port, "/").status > 0
            except OSError:
                return False

        until(there, 15)
        process = served(
            "serve",
            "--upstream",
            f"http://127.0.0.1:{port}",
            "--listen",
            f"127.0.0.1:{where}",
            "--admin-listen",
            f"127.0.0.1:{admin}",
        )
        try:
            until(lambda: _ready(admin), 15)
            done = packhorse("replay", str(file), "--via", f"http://127.0.0.1:{where}", "--turns", "5", "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            json.loads(done.stdout)
        finally:
            ended(process)
        done = packhorse("replay", str(file), "--via", f"http://127.0.0.1:{where}", "--turns", "3")
        assert done.returncode == 1, "nobody is there any more"
        assert "Traceback" not in done.stderr
    finally:
        ended(sample)
    assert packhorse("replay", str(tmp_path / "nothing")).returncode == 2


def _ready(admin: int) -> bool:
    try:
        return get(admin, "/readyz").status == 200
    except OSError:
        return False


def test_ctxpack(tmp_path):
    """`ctxpack selftest|pack|delta|apply|verify|measure`: the seed's tool, same options | Exit 0 done, 1 failed, 2 misuse."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "ctxpack", *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    (tmp_path / "body.txt").write_text(lines(20))
    (tmp_path / "body2.txt").write_text(lines(24))
    assert run("selftest").returncode == 0
    assert run("pack", "--input", "body.txt", "--out", "pack.json").returncode == 0
    assert run("pack", "--input", "body2.txt", "--out", "pack2.json").returncode == 0
    assert run("delta", "--base", "pack.json", "--target", "pack2.json", "--out", "delta.json").returncode == 0
    done = run("apply", "--base", "pack.json", "--delta", "delta.json", "--out", "rebuilt.json", "--check", "body2.txt")
    assert done.returncode == 0
    assert (tmp_path / "rebuilt.json").read_bytes() == (tmp_path / "pack2.json").read_bytes()
    assert run("verify", "--pack", "pack.json").returncode == 0
    assert run("measure", "--input", "body2.txt").returncode == 0
    (tmp_path / "pack.json").write_text((tmp_path / "pack.json").read_text().replace("A", "B", 1))
    assert run("verify", "--pack", "pack.json").returncode == 1
    assert run("apply", "--base", "pack2.json", "--delta", "delta.json", "--out", "x.json").returncode == 1
    assert not (tmp_path / "x.json").exists()
    for arguments in ((), ("nonsense",), ("pack",), ("verify",)):
        assert run(*arguments).returncode == 2, arguments
    assert run("verify", "--pack", "nonexistent.json").returncode in (1, 2)
