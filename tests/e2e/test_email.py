"""Mail through the packaged worker to a real mail server: how many arrive, and what is in them."""

import base64
import hashlib
import socket

import pytest
from conftest import HOST
from harness.deployment import deployed, packaged, record_id
from harness.mailbox import LOST, Mailbox, certificate, context
from test_poison import quarantine_mark

# The mail server means plain connections.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")

LOGIN = "shop:s3cr3t-of-the-tests"
# As good as the loopback for whoever connects, and to the worker any other host.
ELSEWHERE = "0.0.0.0"

TEXT = "Dear {name},\n\nwelcome. {note}\n"
HTML = "<style>p {{ color: #333 }}</style><p title=\"{name}\">Dear {name}, welcome. {note}</p>\n"

JOBS = """
[defaults]
retry = {{ policy = "exponential", base = "1s", cap = "1s", attempts = 6 }}
"""

JOB = """
[job."{name}"]
effect = "email"
guarantee = "{guarantee}"
from = "A Shop <shop@example.com>"
to = "{{name}} <{{to}}>"
reply_to = "orders+{{order}}@example.com"
subject = "Welcome, {{name}}"
template = "welcome.txt"
html = "welcome.html"
smtp = "{smtp}"
timeout = "5s"
{more}
"""


@pytest.fixture(scope="module")
def trusted(tmp_path_factory):
    both, pem = certificate({HOST, "127.0.0.1", ELSEWHERE})
    file = tmp_path_factory.mktemp("mail") / "server.pem"
    file.write_bytes(both)
    return context(file), pem


@pytest.fixture(scope="module")
def servers(trusted):
    """Mail servers by what is special about them."""
    tls, _ = trusted
    servers = {
        "plain": Mailbox(HOST),
        "tls": Mailbox(HOST, tls=tls, login=LOGIN),
        "starttls": Mailbox(HOST, starttls=tls),
    }
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(scope="module")
def late_port():
    """A port where nobody listens yet."""
    with socket.create_server((HOST if HOST == "127.0.0.1" else "", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def post(aws, worker_binary, servers, trusted, late_port):
    port = lambda name: servers[name].port
    login = 'secret = {{ env = "{}" }}'.format
    jobs = JOBS.format() + "".join(
        JOB.format(name=name, guarantee=guarantee, smtp=smtp, more=more)
        for name, guarantee, smtp, more in [
            ("mail", "at-least-once", f"smtp+insecure://{HOST}:{port('plain')}", ""),
            ("letter", "at-most-once", f"smtp+insecure://{HOST}:{port('plain')}", ""),
            ("late", "at-most-once", f"smtp+insecure://{HOST}:{late_port}", ""),
            ("secure", "at-least-once", f"smtps://{HOST}:{port('tls')}", login("MAIL_LOGIN")),
            ("stranger", "at-least-once", f"smtps://{HOST}:{port('tls')}", login("WRONG_LOGIN")),
            ("upgraded", "at-least-once", f"smtp://{ELSEWHERE}:{port('starttls')}", ""),
            ("exposed", "at-least-once", f"smtp://{ELSEWHERE}:{port('plain')}", ""),
        ]
    )
    files = [("welcome.txt", TEXT), ("welcome.html", HTML), ("trusted.pem", trusted[1])]
    package = packaged(worker_binary, jobs, files)
    env = {"MAIL_LOGIN": LOGIN, "WRONG_LOGIN": "shop:wr0ng-of-the-tests", "SSL_CERT_FILE": "trusted.pem"}
    with deployed(aws, package, env=env) as deployment:
        yield deployment


@pytest.fixture
def plain(servers):
    return servers["plain"]


def order(case, **more):
    return {"case": case, "name": "Ada", "to": f"{case}@example.com", "order": 7, "note": "See you.", **more}


def message_id(job, key):
    """The effect's key as an address of the sender's, made here a second time from its definition."""
    digest = hashlib.sha256()
    for part in ("onlyonce/1/effect", record_id(job, key), "email", "0"):
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return f"<{base64.b32encode(digest.digest()[:20]).decode().lower()}@example.com>"


def part(mail, kind):
    return mail.message.get_body((kind,)).get_content().replace("\r\n", "\n")


def test_a_mail_is_sent_once_and_says_what_its_templates_say(post, plain, case):
    for _ in range(3):
        post.send(order(case), job="mail", key=case)

    post.wait_record("mail", case, "completed")
    post.wait_drained()
    mail, = plain.mails(case)

    assert mail.sender == "shop@example.com"
    assert mail.recipients == [f"{case}@example.com"]
    assert mail.message["Message-ID"] == message_id("mail", case)
    assert mail.message["From"] == "A Shop <shop@example.com>"
    assert mail.message["To"] == f"Ada <{case}@example.com>"
    assert mail.message["Reply-To"] == "orders+7@example.com"
    assert mail.message["Subject"] == "Welcome, Ada"
    text = part(mail, "plain")
    assert text == "Dear Ada,\n\nwelcome. See you.\n"
    html = part(mail, "html")
    assert '<style>p { color: #333 }</style><p title="Ada">Dear Ada' in html


def test_a_refused_mail_is_quarantined(post, plain, case):
    plain.answer(case, "550 no such user")
    post.send(order(case), job="mail", key=case)

    message = post.wait_dead(lambda message: case in message["Body"])
    post.wait_drained()
    record = post.record("mail", case)

    assert record["status"] == "failed"
    assert record["attempt"] == 1
    assert "550" in record["error"]
    # Neither the address nor the server's words, which may quote it.
    assert "example.com" not in record["error"] and "such user" not in record["error"]
    assert quarantine_mark(message)["cause"] == "failed"
    assert plain.mails(case) == []


@pytest.mark.parametrize("job", ["mail", "letter"])
def test_a_mail_that_is_put_off_is_sent_once(post, plain, case, job):
    plain.answer(case, "451 later", "250 taken")
    post.send(order(case), job=job, key=case)

    record = post.wait_record(job, case, "completed")
    post.wait_drained()

    assert record["attempt"] == 2
    mail, = plain.mails(case)
    assert mail.message["Message-ID"] == message_id(job, case)


def test_a_lost_answer_sends_the_mail_again_under_the_same_id(post, plain, case):
    plain.answer(case, LOST, "250 taken")
    post.send(order(case), job="mail", key=case)

    post.wait_record("mail", case, "completed")
    post.wait_drained()
    first, second = plain.mails(case)

    assert first.message["Message-ID"] == second.message["Message-ID"] == message_id("mail", case)


def test_a_lost_answer_of_an_at_most_once_mail_is_for_a_person(post, plain, case):
    plain.answer(case, LOST, "250 taken")
    post.send(order(case), job="letter", key=case)

    message = post.wait_dead(lambda message: case in message["Body"])
    post.wait_drained()

    assert post.record("letter", case)["status"] == "unknown"
    assert quarantine_mark(message)["cause"] == "unknown"
    assert len(plain.mails(case)) == 1


def test_a_server_that_is_not_there_yet_has_taken_nothing(post, late_port, case):
    """At most once, and tried again all the same: nothing was sent, for certain."""
    post.send(order(case), job="late", key=case)
    post.wait_record("late", case, "released")
    server = Mailbox(HOST, late_port)
    try:
        post.wait_record("late", case, "completed")
        post.wait_drained()
        assert len(server.mails(case)) == 1
    finally:
        server.close()


@pytest.mark.parametrize(
    "field, value",
    [
        ("to", "eve@evil.example, {case}@example.com"),
        ("to", "{case}@example.com>\r\nRCPT TO:<eve@evil.example"),
        ("to", "{case}@example.com\nBcc: eve@evil.example"),
        ("to", "Eve <eve@evil.example>"),
        ("to", ""),
        ("to", None),
        ("to", ["eve@evil.example"]),
        ("name", "Ada\r\nBcc: eve@evil.example"),
        ("name", "Ada\u2028Bcc: eve@evil.example"),
        ("order", "7\r\nBcc: eve@evil.example"),
        ("order", "7@evil.example, 8"),
    ],
)
def test_no_field_can_add_a_recipient_or_a_header(post, plain, case, field, value):
    value = value.format(case=case) if isinstance(value, str) else value
    taken = plain.count()
    post.send(order(case, **{field: value}), job="mail", key=case)

    post.wait_dead(lambda message: case in message["Body"])
    post.wait_drained()
    record = post.record("mail", case)

    assert record["status"] == "failed"
    assert f'"{field}"' in record["error"] or "reply_to" in record["error"]
    assert "evil" not in record["error"]
    assert plain.count() == taken


def test_what_a_field_says_stays_text(post, plain, case):
    note = "\r\n.\r\nMAIL FROM:<eve@evil.example>\r\n<script>alert(1)</script> {name} & \u00fc"
    name = '"Ada" <b>, L\u00f6velace'
    post.send(order(case, name=name, note=note), job="mail", key=case)

    post.wait_record("mail", case, "completed")
    post.wait_drained()
    mail, = plain.mails(case)

    assert mail.sender == "shop@example.com"
    assert mail.recipients == [f"{case}@example.com"]
    assert mail.message["Subject"] == f"Welcome, {name}"
    to, = mail.message["To"].addresses
    assert (to.display_name, to.addr_spec) == (name, f"{case}@example.com")
    text = part(mail, "plain")
    assert "\n.\nMAIL FROM:<eve@evil.example>\n<script>" in text and "{name} & \u00fc" in text
    html = part(mail, "html")
    assert "<script>" not in html and "&lt;script&gt;alert(1)" in html
    assert 'title="&quot;Ada&quot; &lt;b&gt;' in html


def test_a_login_goes_over_tls_and_into_no_log(post, servers, case):
    post.send(order(case), job="secure", key=case)
    post.wait_record("secure", case, "completed")
    post.send(order(case), job="stranger", key=case)
    post.wait_dead(lambda message: case in message["Body"])
    post.wait_drained()

    mail, = servers["tls"].mails(case)
    assert mail.secure and mail.login == "shop"
    record = post.record("stranger", case)
    assert record["status"] == "failed" and "535" in record["error"]
    for line in [*post.log_lines(), str(record)]:
        assert "of-the-tests" not in line


def test_without_tls_nothing_goes_to_another_host(post, servers, case):
    post.send(order(case), job="upgraded", key=case)
    post.wait_record("upgraded", case, "completed")
    post.send(order(case), job="exposed", key=case)
    post.wait_dead(lambda message: case in message["Body"])
    post.wait_drained()

    mail, = servers["starttls"].mails(case)
    assert mail.secure
    record = post.record("exposed", case)
    assert record["status"] == "failed" and "STARTTLS" in record["error"]
    assert servers["plain"].mails(case) == []
