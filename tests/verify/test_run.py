"""A whole verification: names, goals, keys, certificates, proxies, public servers, and its text."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitserve.errors import UsageError
from fitserve.report.verification_help import HELP
from fitserve.report.verification_text import render_verification
from fitserve.verify.options import Options
from fitserve.verify.reach import name_help
from fitserve.verify.run import exit_code, verify_server
from fitserve.verify.session import Served
from fitserve.verify.verification import Check, Verification

QUICK = Options(profile="quick", deadline_seconds=5)


def quick(**changes: object) -> Options:
    """Quick options with changes."""
    return Options(**{"profile": "quick", "deadline_seconds": 5, **changes})  # type: ignore[arg-type]


def found(verification: Verification, name: str) -> Check:
    """A check by its name."""
    return next(check for check in verification.checks if check.name == name)


def test_a_good_server_is_proven(fake_url: str) -> None:
    """The full profile passes, and what the server said of itself is kept."""
    verification = verify_server(f"{fake_url}/good", Options(deadline_seconds=5))

    assert verification.passed
    assert 0 == exit_code(verification)
    assert ("fake", ["fake"], 256, "0.32.0") == (
        verification.model,
        verification.served_names,
        verification.max_model_len,
        verification.server_version,
    )
    names = [check.name for check in verification.checks]
    assert {
        "boundary-quarter",
        "boundary-three-quarters",
        "boundary-one-below",
        "boundary-prompt-over",
    } <= set(names)
    assert ["load-1", "load-2", "load-4", "load-8"] == [name for name in names if name.startswith("load-")]


def test_an_unknown_name_is_its_own_finding(fake_url: str) -> None:
    """A 404 for the user's name shows the served names and both ways out; the other checks go on with a served name."""
    verification = verify_server(f"{fake_url}/good", quick(model="my-model"))

    check = found(verification, "model-name")
    assert (False, "model-name-unknown") == (check.passed, check.error_type)
    assert "'fake'" in check.actual
    assert '"model": "fake"' in check.actual
    assert "--served-model-name my-model" in check.actual
    assert ["model-name"] == [one.name for one in verification.checks if one.passed is False]
    assert "fake" == verification.model


def test_a_name_is_not_taken_by_a_server_that_says_yes_to_everything(fake_url: str) -> None:
    """A page in place of an answer is no answer for that name: it is no API, whatever name is asked for."""
    verification = verify_server(f"{fake_url}/says-yes", quick(model="my-model"))

    assert (False, "not-openai-compatible") == (
        found(verification, "model-name").passed,
        found(verification, "model-name").error_type,
    )
    assert 3 == exit_code(verification)


def test_many_names_are_counted() -> None:
    """A list of a thousand names is shown by its beginning, and a name as long as a page by its own."""
    served = Served(names=[f"model-{number}" for number in range(1000)], model="model-0")

    assert "'model-19' and 980 more" in name_help("mine", served)
    assert 300 > len(name_help("mine", Served(names=["m" * 10**6])).partition("Send")[0])


def test_goals_are_verdicts(fake_url: str) -> None:
    """With a goal, three questions are answered: one of full length, N of the goal's length, N of full length."""
    verification = verify_server(
        f"{fake_url}/good", Options(deadline_seconds=5, goal_context=100, goal_concurrency=3)
    )

    verdicts = verification.numbers["verdicts"]
    assert ["yes", "yes", "yes"] == [verdict["answer"] for verdict in verdicts]
    assert 3 == found(verification, "goal-length").concurrency
    assert ["load-1", "load-2", "load-3"] == [
        check.name for check in verification.checks if check.name.startswith("load-")
    ]


def test_a_goal_whose_outputs_end_early_is_not_proven(fake_url: str) -> None:
    """Requests that end before they have the goal's length have taken less room: neither a yes nor a no."""
    verification = verify_server(f"{fake_url}/ends-early", quick(goal_context=200, goal_concurrency=3))

    check = found(verification, "goal-length")
    assert (None, "ended-early") == (check.passed, check.error_type)
    assert "not asked" == verification.numbers["verdicts"][1]["answer"]
    assert "unproven goal-length" in render_verification(verification)
    assert [0, 1] == [
        exit_code(verification, options) for options in (QUICK, quick(goal_context=200, goal_concurrency=3))
    ]


@pytest.mark.parametrize("mode", ["ollama", "pooling"])
def test_a_goal_that_cannot_be_asked_is_no_success(fake_url: str, mode: str) -> None:
    """Whoever gives a goal relies on the exit code for it."""
    options = quick(goal_context=100, goal_concurrency=2)
    asked = verify_server(f"{fake_url}/{mode}", options)
    proven = Verification(
        url="http://h", checks=[Check(name="goal-length", passed=True, expected="all", actual="all")]
    )

    assert (1, 0, 0) == (exit_code(asked, options), exit_code(asked, QUICK), exit_code(proven, options))


def test_without_a_goal_nothing_is_pretended(fake_url: str) -> None:
    """Questions about a goal that was not given are not asked."""
    verdicts = verify_server(f"{fake_url}/good", QUICK).numbers["verdicts"]

    assert ["yes", "not asked", "not asked"] == [verdict["answer"] for verdict in verdicts]


def test_a_goal_beyond_the_context_fails(fake_url: str) -> None:
    """A goal longer than ``max_model_len`` fails without a request."""
    verification = verify_server(f"{fake_url}/good", quick(goal_context=1000))

    check = found(verification, "goal-length")
    assert (False, "request-too-long") == (check.passed, check.error_type)
    assert 1 == exit_code(verification)


def test_no_goal_is_worth_more_requests_than_a_server_bears(fake_url: str) -> None:
    """Beyond so many requests in flight the goal is not asked, and the ramp ends there."""
    verification = verify_server(f"{fake_url}/half-json", quick(goal_context=8, goal_concurrency=10**9))

    check = found(verification, "goal-length")
    assert (None, None) == (check.passed, check.error_type)
    assert "no more than 1,024 requests are sent at once" in check.actual
    assert 1024 == quick(goal_concurrency=10**9).ramp_concurrency


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_a_low_limit_of_open_files_is_raised(fake_url: str) -> None:
    """More requests than open files: the limit is this machine's, no failure of the server, and stands again afterwards."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = (32, before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, low)
    try:
        verification = verify_server(f"{fake_url}/good", quick(goal_concurrency=32))
        after = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert True is found(verification, "load-32").passed
    assert low == after


def test_full_length_beyond_the_goal_is_knowledge_not_failure(fake_url: str) -> None:
    """Preempted at the goal's length is a failure; preempted beyond it is told, and fails nothing."""
    verification = verify_server(
        f"{fake_url}/preempting", Options(deadline_seconds=5, goal_context=100, goal_concurrency=4)
    )

    goal, full = found(verification, "goal-length"), found(verification, "full-length")
    assert (False, "preemption-thrash") == (goal.passed, goal.error_type)
    assert (None, "preemption-thrash") == (full.passed, full.error_type)
    assert ["yes", "no", "no"] == [verdict["answer"] for verdict in verification.numbers["verdicts"]]
    knee = verification.numbers["load"]["knee"]
    assert (4, "preemption", 2) == (knee["concurrency"], knee["limit"], knee["highest_clean"])


def test_a_key_is_sent_from_its_variable(fake_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, its value goes to the server, and nowhere else."""
    monkeypatch.setenv("FITSERVE_TEST_KEY", "let-me-in")

    verification = verify_server(f"{fake_url}/key", quick(api_key_env="FITSERVE_TEST_KEY"))

    assert verification.passed
    assert "let-me-in" not in render_verification(verification)
    assert "let-me-in" not in str(verification)


def test_an_empty_key_is_a_usage_error(fake_url: str) -> None:
    """A variable without a key is told before anything is asked."""
    with pytest.raises(UsageError, match="FITSERVE_NO_SUCH_KEY"):
        verify_server(f"{fake_url}/key", quick(api_key_env="FITSERVE_NO_SUCH_KEY"))


def test_a_public_server_needs_a_yes() -> None:
    """A server on the internet is not put under load unless the user says that it is theirs."""
    with pytest.raises(UsageError, match="neither on this machine nor in a private network"):
        verify_server("http://8.8.8.8:8000", QUICK)


def test_a_host_known_only_to_a_proxy_needs_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without an address here may be anywhere behind the proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    with pytest.raises(UsageError, match="neither on this machine"):
        verify_server("http://no-such-host.invalid:8000", QUICK)


def test_this_machine_is_never_asked_through_a_proxy(fake_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment does not stand between the tool and a server on the same machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert verify_server(f"{fake_url}/good", QUICK).passed


def test_a_broken_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment's proxy is used and is not there, nothing is reached."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    verification = verify_server("http://10.0.0.1:8000", QUICK)

    assert (False, "connection-refused") == (verification.checks[0].passed, verification.checks[0].error_type)
    assert 4 == exit_code(verification)


PROXY = Path(__file__).with_name("proxy.py")


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A real HTTP proxy: its address, and the hosts that it was asked for (filled when it has ended)."""
    asked: list[str] = []
    with subprocess.Popen([sys.executable, PROXY], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        yield f"http://user:secret@127.0.0.1:{int(program.stdout.readline())}", asked
        program.terminate()
        asked += program.stdout.read().split()


def test_a_proxy_of_the_environment_is_used(
    fake_url: str, proxy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that only the proxy can reach is verified through it, with its name and password; NO_PROXY goes around it."""
    address, _ = proxy
    monkeypatch.setenv("http_proxy", address)
    port = fake_url.rpartition(":")[2]

    through = verify_server(f"http://behind-the-proxy.invalid:{port}/good/v1", quick(allow_public=True))
    monkeypatch.setenv("no_proxy", "behind-the-proxy.invalid")
    around = verify_server(f"http://behind-the-proxy.invalid:{port}/good/v1", quick(allow_public=True))

    assert through.passed
    assert ["host-unknown"] == [check.error_type for check in around.checks]
    assert "secret" not in render_verification(through)


def test_tls_goes_through_a_proxy_untouched(
    tls_url: tuple[str, Path], proxy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tunnel (CONNECT) is asked for, and the server's own certificate is what counts."""
    monkeypatch.setenv("https_proxy", proxy[0])
    url, certificate = tls_url
    monkeypatch.setattr("fitserve.verify.target.Target.loopback", property(lambda _: False))

    accepted = verify_server(url, quick(ca_file=str(certificate)))
    refused = verify_server(url, QUICK)

    assert accepted.passed
    assert ["tls-failed"] == [check.error_type for check in refused.checks]


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_nothing_listens() -> None:
    """A refused connection ends it at once: exit 4, and the way to find out why."""
    verification = verify_server(f"127.0.0.1:{free_port()}", QUICK)

    assert ["connection-refused"] == [check.error_type for check in verification.checks]
    assert 4 == exit_code(verification)
    assert "fitserve diagnose" in render_verification(verification)


def test_a_server_that_ends_meanwhile_is_told_apart() -> None:
    """A refused connection after an answer is no wrong port: the server has died of a question."""
    program = Path(__file__).with_name("fake_server.py")
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        verification = verify_server(f"http://127.0.0.1:{int(server.stdout.readline())}/dies", QUICK)

    text = render_verification(verification)
    assert (True, "connection-lost") == (
        found(verification, "models").passed,
        found(verification, "chat").error_type,
    )
    assert "connection-refused" == found(verification, "health-after").error_type
    assert 1 == exit_code(verification)
    assert "help: the server was there and has ended meanwhile" in text
    assert "nothing listens there" not in text


def test_connections_that_nobody_takes_are_told_apart() -> None:
    """A full queue of connections drops new ones, as a firewall does: there is no connection, and no silent server."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            caller = waiting.enter_context(socket.socket())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(listener.getsockname())

        verification = verify_server(f"127.0.0.1:{listener.getsockname()[1]}", quick(deadline_seconds=0.5))

    assert ["no-connection"] == [check.error_type for check in verification.checks]
    assert 4 == exit_code(verification)


def test_an_unknown_host_is_named() -> None:
    """A name without an address is no time-out."""
    for host in ("no-such-host.invalid", "xn--"):
        verification = verify_server(f"http://{host}:8000", QUICK)

        assert ["host-unknown"] == [check.error_type for check in verification.checks]
        assert 4 == exit_code(verification)


def answer_raw(listener: socket.socket, raw: bytes | None) -> None:
    """Answer every connection with the same bytes, or hold it open in silence until the listener ends."""
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        while True:
            connection = held.enter_context(listener.accept()[0])
            if raw is not None:
                connection.sendall(raw)
                connection.close()


@pytest.mark.parametrize(
    ("raw", "error_type"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not-http"),
        (b"", "connection-lost"),
        (None, "silent-server"),
    ],
)
def test_what_is_no_http_server_is_not_reached(raw: bytes | None, error_type: str) -> None:
    """Another service, a closed door and a silent one each have their name, and none of them holds us up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_raw, args=(listener, raw))
        thread.start()
        port = listener.getsockname()[1]
        verification = verify_server(f"127.0.0.1:{port}", quick(deadline_seconds=0.3))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert [error_type] == [check.error_type for check in verification.checks]
    assert 4 == exit_code(verification)
    text = render_verification(verification)
    assert "help: " in text
    assert (error_type == "silent-server") == (f"ss -ltnp 'sport = :{port}'" in text)


@pytest.fixture
def tls_url(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with a certificate of its own making, and that certificate."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {subject}".split()
    made = subprocess.run([*command, "-keyout", key, "-out", certificate], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"openssl cannot make a certificate: {made.stderr.decode()[-200:]}")
    program = Path(__file__).with_name("fake_server.py")
    server_command = [sys.executable, program, certificate, key]
    with subprocess.Popen(server_command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"https://localhost:{int(server.stdout.readline())}/good", certificate
        server.kill()


def test_a_certificate_is_checked(tls_url: tuple[str, Path]) -> None:
    """A certificate that nobody vouches for is refused, and accepted where its authority is named."""
    url, certificate = tls_url

    refused = verify_server(url, QUICK)
    accepted = verify_server(url, quick(ca_file=str(certificate)))

    assert ["tls-failed"] == [check.error_type for check in refused.checks]
    assert accepted.passed


def test_certificates_that_cannot_be_read_are_a_usage_error(tmp_path: Path) -> None:
    """A file that holds no certificate is told by its name."""
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")

    with pytest.raises(UsageError, match="certificates cannot be read"):
        verify_server("https://localhost:1", quick(ca_file=str(broken)))


def test_sizes_below_one_are_usage_errors() -> None:
    """Nothing is asked of a server for nothing."""
    for name in ("deadline_seconds", "goal_context", "goal_concurrency", "input_tokens", "output_tokens"):
        with pytest.raises(UsageError, match=name):
            Options(**{name: 0})


def test_every_help_is_for_a_known_error_type() -> None:
    """A help line that no check can ask for is dead."""
    source = Path(verify_server.__code__.co_filename).parent
    written = "".join(path.read_text(encoding="utf-8") for path in source.glob("*.py"))

    # A status is written as it comes, and a server that has ended meanwhile is told apart in the text.
    dynamic = {kind for kind in HELP if kind.startswith("http-")} | {"server-gone"}
    assert [] == [kind for kind in HELP.keys() - dynamic if f'"{kind}"' not in written]


def test_http_to_a_server_that_speaks_tls_is_told(tls_url: tuple[str, Path]) -> None:
    """The wrong scheme is found by asking the port itself, and the right one is named."""
    url, _ = tls_url

    verification = verify_server(url.replace("https://", "http://"), QUICK)

    assert [(False, "tls-failed")] == [(check.passed, check.error_type) for check in verification.checks]
    assert "write https:// in place of http://" in verification.checks[0].actual


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_text_has_every_check_and_fits(fake_url: str, width: int) -> None:
    """Every check stands in the text with its words, the load, the verdicts and the knee follow, nothing is cut off."""
    verification = verify_server(
        f"{fake_url}/preempting", quick(goal_context=100, goal_concurrency=4, deadline_seconds=5)
    )

    text = render_verification(verification, width=width)

    tables = text.partition("\n\nhelp: ")[0]
    assert max(map(len, tables.splitlines())) <= max(width, 80)
    assert [] == [check.name for check in verification.checks if f" {check.name}" not in text]
    assert "the first preemption at 4 at once" in text
    assert "no        4 at once of the goal's length" in text
    assert "help: " in text
    assert "\x1b" not in text
    assert "\x1b[31mfailed" in render_verification(verification, colored=True)


def test_what_is_no_api_is_told_in_few_lines(fake_url: str) -> None:
    """A web server of another kind is named by its page, without its markup, and what could not be asked takes one line."""
    text = render_verification(verify_server(f"{fake_url}/html", Options(deadline_seconds=5)))

    assert "an HTML page titled 'Welcome'" in text
    assert "<" not in text
    assert 1 == text.count("no model name is known")
    assert "16 checks" in text


def test_a_servers_words_move_no_cursor() -> None:
    """A name or a version with a terminal's commands in it is shown without them."""
    text = render_verification(
        Verification(
            url="http://h", model="m\x1b[31m", served_names=["m\x1b[31m"], server_version="1\x1b[2J\r"
        )
    )

    assert "\x1b" not in text
    assert "\r" not in text


def test_what_is_not_proven_is_said(fake_url: str) -> None:
    """After a pass, the text says what nobody has asked for, with the option that asks it."""
    text = " ".join(render_verification(verify_server(f"{fake_url}/good", QUICK)).split())

    assert "not proven: your own requests at once (--goal-context N --goal-concurrency N)" in text
    assert "--minutes M" in text
