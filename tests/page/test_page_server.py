"""The server: what the page gets, and that nobody else gets anything."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from colobus.page import server
from colobus.page.view import PageView
from colobus.runs.listing import Runs
from helpers.browsing import TRAVERSALS
from helpers.launching import python, refused, start
from helpers.made_runs import append, evaluate, make_run, rising, row

TOKEN = "a-token-of-a-test"
PORT = 4711
NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def each_look_finds_new_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too, where the look before may have taken long."""
    monkeypatch.setattr("colobus.page.view.QUICK", 1e9)


def client(*places: Path, token: str = TOKEN, host: str = "127.0.0.1:4711") -> TestClient:
    app = server.make_app(PageView(Runs(places)), TOKEN, PORT)
    cookies = {server.cookie_name(PORT): token} if token else {}
    return TestClient(app, base_url=f"http://{host}", cookies=cookies)


def look(page: TestClient, after: int = 0, columns: str = "") -> Any:
    answer = page.get(f"/look?after={after}&columns={columns}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = make_run(tmp_path / "runs" / "pong-1", rising(20, kl=0.25))
    evaluate(run, 20_000, [1.0, 3.0])
    (run / "videos").mkdir()
    (run / "videos" / "20000.mp4").write_bytes(b"0123456789")
    (tmp_path / "secret.json").write_text("a secret")
    return tmp_path / "runs"


ADDRESSES = ["/", "/look", "/assets/page.js", "/films/x/y", "/nothing", "/?token=", "/?token=wrong"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "ü"])
def test_nothing_is_shown_without_the_token(folder: Path, address: str, token: str) -> None:
    page = client(folder, token="")
    cookie = f"{server.cookie_name(PORT)}={token}".encode()
    answer = page.get(address, headers=[(b"cookie", cookie)] if token else [])
    assert answer.status_code == 403
    assert "pong" not in answer.text
    assert "set-cookie" not in answer.headers


def test_the_link_gives_a_cookie_for_this_server_alone(folder: Path) -> None:
    page = client(folder, token="")
    answer = page.get(f"/?token={TOKEN}")
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"colobus-4711={TOKEN}")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page.get("/look").status_code == 200
    assert "set-cookie" not in page.get("/").headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4711", "127.0.0.1.evil.example"])
def test_other_names_of_this_machine_are_refused(folder: Path, host: str) -> None:
    answer = client(folder, host=host).get(f"/look?token={TOKEN}")
    assert answer.status_code == 400
    assert "pong" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(folder: Path, method: str) -> None:
    for address in ("/", "/look", "/assets/page.js"):
        assert client(folder).request(method, address).status_code == 405


@pytest.mark.slow
def test_every_answer_forbids_other_sites_and_scripts(folder: Path) -> None:
    with listening(folder) as port:
        page = HTTPConnection(server.HOST, port, timeout=60)
        for token in (TOKEN, "wrong"):
            for address in ("/", "/look", "/assets/page.css", "/nothing"):
                page.request("GET", f"{address}?token={token}")
                answer = page.getresponse()
                answer.read()
                assert {name: answer.headers[name] for name in server.HEADERS} == server.HEADERS
                assert "access-control-allow-origin" not in answer.headers
        page.close()


def test_no_path_leads_out(folder: Path) -> None:
    """As a browser sends them, and as a program does that leaves the dots as they are."""
    page = client(folder)
    run = look(page)["ids"][0]
    with listening(folder) as port:
        for address in (one.format(run=run) for one in TRAVERSALS):
            answer = page.get(address)
            for code, said in (
                (answer.status_code, answer.text),
                answer_of(port, f"{address}?token={TOKEN}"),
            ):
                assert (code, "secret" in said, "import" in said) == (404, False, False), address


def test_films_are_sent_also_in_pieces_and_that_of_milestones_by_its_name(folder: Path) -> None:
    page, videos = client(folder), folder / "pong-1" / "videos"
    run = look(page)["runs"][0]
    assert run["together"] is None
    address = f"/films/{run['id']}/{run['films'][0]['name']}"
    whole = page.get(address)
    assert (whole.status_code, whole.content) == (200, b"0123456789")
    assert whole.headers["content-type"] == "video/mp4"
    piece = page.get(address, headers={"range": "bytes=2-4"})
    assert (piece.status_code, piece.content) == (206, b"234")
    (videos / "20000.mp4").rename(videos / "milestones.mp4")
    assert page.get(address).status_code == 404
    run = look(page)["runs"][0]
    assert page.get(f"/films/{run['id']}/{run['together']}").content == b"0123456789"
    assert run["films"] == []


def test_the_first_answer_has_everything_and_later_ones_what_changed(folder: Path) -> None:
    make_run(folder / "pong-2", rising(3), seed=2)
    page = client(folder)
    first = look(page, columns="kl,nothing")
    assert first["names"] == ["pong-1", "pong-2"]
    assert [name for _, name in first["groups"]] == ["pong · appo"]
    assert {run["group"] for run in first["runs"]} == {first["groups"][0][0]}
    run = first["runs"][0]
    assert run["curve"]["steps"] == [1000 * i for i in range(1, 21)]
    assert run["curve"]["kl"] == [0.25] * 20
    assert run["curve"]["nothing"] == [None] * 20
    assert run["evaluations"][0]["mean"] == 2.0
    assert run["human"] == {"random": -20.7, "human": 14.6}
    assert look(page, first["now"])["runs"] == []
    append(folder / "pong-2", row(4000, 8.0, 5.0))
    second = look(page, first["now"])
    assert [run["folder"] for run in second["runs"]] == ["pong-2"]
    assert second["runs"][0]["newest"]["score"] == 5.0
    assert second["now"] > first["now"]
    make_run(folder / "pong-3", seed=3)
    third = look(page, second["now"])
    assert [run["folder"] for run in third["runs"]] == ["pong-3"]
    assert len(third["ids"]) == 3


def test_what_is_known_of_a_run_holds_whatever_begins_later(folder: Path) -> None:
    """A page keeps what it was told of runs that have not changed since."""
    make_run(folder / "pong-2", seed=2)
    page = client(folder)
    first = look(page)
    groups = {run["folder"]: run["group"] for run in first["runs"]}
    make_run(folder / "a", lr=0.5)  # before all others
    make_run(folder / "pong-1-b", game="breakout")
    make_run(folder / "below" / "pong-1", lr=0.1)
    second = look(page, first["now"])
    assert len(second["runs"]) == 3
    names = "runs/a below/pong-1 runs/pong-1 runs/pong-1-b runs/pong-2"
    assert " ".join(second["names"]) == names
    assert second["groups"][2] == [groups["pong-1"], "pong · appo · lr 0.002"]
    fresh = look(client(folder))
    assert fresh["groups"] == second["groups"]
    assert {run["id"]: run["group"] for run in fresh["runs"]}.items() >= {
        run["id"]: run["group"] for run in [*first["runs"], *second["runs"]]
    }.items()


def test_two_pages_are_told_the_same(folder: Path) -> None:
    app = server.make_app(PageView(Runs([folder])), TOKEN, PORT)
    one, two = (
        TestClient(app, base_url="http://localhost", cookies={server.cookie_name(PORT): TOKEN})
        for _ in range(2)
    )
    now = [look(page)["now"] for page in (one, two)]
    append(folder / "pong-1", row(30_000, 60.0, 5.0))
    assert [len(look(page, n)["runs"]) for page, n in zip((one, two), now, strict=True)] == [1, 1]


def test_fifty_long_runs_are_thinned(tmp_path: Path) -> None:
    for seed in range(50):
        make_run(tmp_path / f"pong-{seed}", rising(700), seed=seed)
    found = look(client(tmp_path))
    points = [len(run["curve"]["steps"]) for run in found["runs"]]
    assert len(points) == 50
    assert max(points) <= 480
    assert min(points) >= 200
    assert {run["curve"]["steps"][-1] for run in found["runs"]} == {700_000}


@pytest.mark.parametrize("words", ["after=x", "after=-1", "after=" + "9" * 99])
def test_wrong_questions_are_refused(folder: Path, words: str) -> None:
    assert client(folder).get(f"/look?{words}").status_code == 400


def test_of_more_columns_than_a_page_may_ask_for_it_gets_the_first(folder: Path) -> None:
    found = look(client(folder), columns="kl," + "a," * 999)
    assert all(run["curve"]["kl"] for run in found["runs"])


def test_hostile_names_and_numbers_are_only_data(tmp_path: Path) -> None:
    strange: dict[str, Any] = {"kl": float("nan"), NAME: 1.0}
    run = make_run(tmp_path / NAME.replace("/", "_"), rising(3, **strange), game=NAME, name=NAME)
    evaluate(run, 5, [1.0], protocol=NAME)
    answer = client(tmp_path).get("/look?columns=kl")
    assert answer.headers["content-type"] == "application/json"
    found = json.loads(answer.text, parse_constant=lambda name: pytest.fail(name))
    assert found["runs"][0]["game"] == NAME


def test_the_page_asks_nobody_else_and_has_no_inline_scripts() -> None:
    files = server.assets()
    assert {"index.html", "page.js", "page.css", "uPlot.iife.min.js", "uPlot.min.css"} <= set(files)
    own = {name: data.decode() for name, data in files.items() if not name.startswith("uPlot")}
    for name, text in own.items():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text))
        assert addresses <= {"http://www.w3.org"}, name  # of SVG, fetched by nobody
        assert "innerHTML" not in text
        assert "insertAdjacentHTML" not in text
    page = own["index.html"]
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=|<style", page)


def test_tokens_differ_and_cannot_be_guessed() -> None:
    tokens = {server.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32


@pytest.mark.skipif(sys.platform != "linux", reason="names of folders are text there")
def test_a_folder_whose_name_is_no_text_is_shown_too(folder: Path) -> None:
    make_run(Path(os.fsdecode(os.fsencode(folder / "caf") + b"\xe9-1")), rising(5))
    names = [run["folder"] for run in look(client(folder))["runs"]]
    assert len(names) == 2
    assert "pong-1" in names


def test_a_link_for_one_visit_is_good_once_and_then_by_its_cookie(folder: Path) -> None:
    app = server.make_app(PageView(Runs([folder])), TOKEN, PORT, "once")
    mine, other = (TestClient(app, base_url="http://127.0.0.1:4711") for _ in range(2))
    assert mine.get("/?token=once").status_code == 200
    assert other.get("/?token=once").status_code == 403
    assert mine.get("/?token=once").status_code == 200  # loaded again: it has the cookie
    assert mine.get("/look").status_code == 200
    assert other.get("/look").status_code == 403
    assert other.get("/?token=").status_code == 403  # not even where there is no such link


@pytest.mark.parametrize("origin", ["http://127.0.0.1:6006", "null", "https://127.0.0.1:4711"])
def test_pages_of_other_servers_are_not_answered(folder: Path, origin: str) -> None:
    page = client(folder)
    assert page.get("/look", headers={"origin": origin}).status_code == 403
    assert page.get("/look", headers={"origin": "http://127.0.0.1:4711"}).status_code == 200


STRANGE = {
    "a huge score": [row(30_000, 60.0, 1.7976931348623157e308)],
    "no time between": [row(30_000, 1e-300, 1.0), row(40_000, 2e-300, 1.0)],
    "huge steps": [row(10**308, 60.0, 1.0), row(-(10**308), 61.0, 1.0)],
    "an infinite event": [],
    "a pipe": [],
}


@pytest.mark.parametrize("how", STRANGE)
def test_one_strange_run_takes_no_other_down(folder: Path, how: str) -> None:
    strange = make_run(folder / "strange", [*rising(3), *STRANGE[how]])
    if how == "an infinite event":
        deep = f"{'[' * 500}1{']' * 500}"
        values = f'"x": 1e999, "y": [NaN], "z": [{{"a": NaN}}], "deep": {deep}'
        (strange / "events.jsonl").write_text(f'{{"event": "lost", {values}}}\n')
    if how == "a pipe":
        (strange / "metrics.jsonl").unlink()
        os.mkfifo(strange / "metrics.jsonl")
    names = [run["folder"] for run in look(client(folder), columns="steps_per_second")["runs"]]
    assert names == ["pong-1", "strange"]


def test_behind_links_nothing_is_shown(folder: Path, tmp_path: Path) -> None:
    secret = make_run(tmp_path / "secret", rising(7))
    evaluate(secret, 7_000, [42.0])
    (secret / "videos").mkdir()
    (secret / "videos" / "7000.mp4").write_bytes(b"a secret")
    run = make_run(folder / "linked")
    (run / "metrics.jsonl").unlink()
    for name in ("metrics.jsonl", "eval", "videos"):
        (run / name).symlink_to(secret / name)
    found = {one["folder"]: one for one in look(client(folder))["runs"]}["linked"]
    assert (found["evaluations"], found["films"], found["newest"]) == ([], [], {})


@contextmanager
def listening(folder: Path) -> Iterator[int]:
    """Serve the page on a thread; give its port."""
    with server.listen(0) as at:
        port = at.getsockname()[1]
        page = server.PageServer(server.make_app(PageView(Runs([folder])), TOKEN, port))
        page.config.timeout_graceful_shutdown = 30  # a second that was too short is told on stderr
        thread = threading.Thread(target=page.run, args=([at],))
        thread.start()
        try:
            yield port
        finally:
            page.should_exit = True
            thread.join()


def answer_of(port: int, path: str) -> tuple[int, str]:
    page = HTTPConnection(server.HOST, port, timeout=60)
    page.request("GET", path)
    answer = page.getresponse()
    text = answer.read().decode()
    page.close()
    return answer.status, text


ASK = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
OTHERS = {
    "says nothing": b"",
    "half a request": ASK,
    "half a body": b"POST /look HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{",
    "no HTTP": bytes(range(1, 256)) * 20,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    "endless headers": ASK + b"X: " + b"x" * 200_000,
    "many headers": ASK + b"X: x\r\n" * 20_000,
    "stays after an answer": ASK + b"\r\n",
    "reads no answer": (ASK + b"\r\n") * 2_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("said", OTHERS.values(), ids=OTHERS)
def test_many_open_connections_shut_nobody_out(
    folder: Path, said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening(folder) as port, ExitStack() as held:
        for _ in range(5 * server.MOST_CONNECTIONS):
            one = held.enter_context(socket.create_connection((server.HOST, port), timeout=60))
            one.setblocking(False)
            with suppress(OSError):  # it may be closed already
                one.send(said)
        for path in ("/", "/look", "/assets/page.js"):
            assert answer_of(port, f"{path}?token={TOKEN}")[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("said", [*OTHERS.values()][:3], ids=[*OTHERS][:3])
def test_who_asks_for_nothing_is_closed(
    folder: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.2)
    with listening(folder) as port, socket.create_connection((server.HOST, port), 60) as one:
        one.sendall(said)
        with suppress(ConnectionResetError):
            while one.recv(4096):  # an answer that needs no body
                pass


@pytest.mark.processes
def test_watch_prints_a_link_that_only_this_machine_can_open(tmp_path: Path) -> None:
    make_run(tmp_path / "pong-1", rising(5))
    with start("watch", tmp_path) as process:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", link)
        assert match
        page = HTTPConnection("127.0.0.1", int(match[1]))
        page.request("GET", f"/look?token={match[2]}")
        assert b"pong-1" in page.getresponse().read()
        page.request("GET", "/look?token=wrong")
        assert page.getresponse().status == 403
        page.close()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    names = sorted(path.name for path in tmp_path.rglob("*"))
    assert names == ["config.json", "metrics.jsonl", "pong-1"]


def test_mistakes_of_watch_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.cli.watch.lower_priority", lambda by: None)  # stays with pytest
    assert "is no folder" in refused("watch", tmp_path / "nothing")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused("watch", tmp_path, "--port", port)
    assert f"--port {port}: cannot listen there" in said
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # a package that is not installed
    monkeypatch.delitem(sys.modules, "colobus.page.server", raising=False)
    assert "pip install 'colobus[page]'" in refused("watch", tmp_path)


@pytest.mark.processes
def test_the_page_needs_no_torch() -> None:
    script = (
        "import sys, colobus.page.server, colobus.page.view;"
        "print({'torch', 'matplotlib', 'numpy', 'ale_py', 'cv2'} & set(sys.modules))"
    )
    assert python("-c", script) == "set()\n"
