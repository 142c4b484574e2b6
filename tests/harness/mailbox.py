"""The other side of an `email` effect: a mail server that remembers what it took."""

import datetime
import email
import email.policy
import ipaddress
import ssl
import threading
from dataclasses import dataclass

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .receiver import address_for

# Takes the mail, and breaks the connection off before it says so.
LOST = "lost"


@dataclass(frozen=True)
class Mail:
    sender: str
    recipients: list
    message: email.message.EmailMessage
    raw: bytes
    secure: bool
    login: str | None


class Mailbox:
    """Takes each mail with 250, or as `answer` said for the one whose recipient has this name."""

    def __init__(self, host="127.0.0.1", port=0, *, tls=None, starttls=None, login=None):
        self._arrived = threading.Condition()
        self._mails = []
        self._answers = {}
        # TLS from the first byte is none in its eyes.
        required = {"auth_required": True, "auth_require_tls": False} if login else {}
        self._controller = Listening(
            Handler(self),
            hostname=address_for(host),
            port=port,
            ssl_context=tls,
            tls_context=starttls,
            require_starttls=starttls is not None,
            authenticator=authenticator(login) if login else None,
            **required,
        )
        self._controller.start()
        self.port = self._controller.port

    def answer(self, name, *answers):
        """Answers the mails to `name` so in turn; the last one stays."""
        with self._arrived:
            self._answers[name] = list(answers)

    def mails(self, name):
        """What was taken for `name`."""
        with self._arrived:
            return [mail for mail in self._mails if any(to.startswith(name) for to in mail.recipients)]

    def count(self):
        with self._arrived:
            return len(self._mails)

    def wait_for(self, name, count=1, timeout=45):
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.mails(name)) >= count, timeout):
                raise AssertionError(f"{name}: {len(self.mails(name))} of {count} mails after {timeout} s")
            return self.mails(name)

    def close(self):
        self._controller.stop()

    def _next(self, name):
        with self._arrived:
            answers = self._answers.get(name) or ["250 taken"]
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def _take(self, mail):
        with self._arrived:
            self._mails.append(mail)
            self._arrived.notify_all()


class Listening(Controller):
    def _trigger_server(self):
        # Where any port would do, it is known only now.
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class Handler:
    def __init__(self, mailbox):
        self._mailbox = mailbox

    async def handle_DATA(self, server, session, envelope):
        answer = self._mailbox._next(envelope.rcpt_tos[0].split("@")[0])
        if answer.startswith("250") or answer == LOST:
            raw = envelope.original_content
            message = email.message_from_bytes(raw, policy=email.policy.default)
            secure = session.ssl is not None or server.transport.get_extra_info("ssl_object") is not None
            login = session.auth_data
            self._mailbox._take(
                Mail(envelope.mail_from, envelope.rcpt_tos, message, raw, secure, login)
            )
        if answer == LOST:
            server.transport.abort()
        return answer


def authenticator(login):
    user, password = login.split(":")

    def check(server, session, envelope, mechanism, data):
        is_right = (data.login, data.password) == (user.encode(), password.encode())
        return AuthResult(success=is_right, handled=False, auth_data=user if is_right else None)

    return check


def certificate(hosts):
    """A certificate of these addresses that is its own authority: the server's context, and the PEM
    that a client trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail server of the tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host)) for host in hosts])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem + private, pem


def context(path):
    """A server's TLS context of a file that holds certificate and key."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(path)
    return made
