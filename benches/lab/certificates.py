"""A certificate for this machine, and the roots to trust: the system's own, and ours."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


def bundle(home):
    """The file with the roots, as large as a real one, and the server's certificate and key."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = signed("bench root", ca_key, "bench root", ca_key, x509.BasicConstraints(ca=True, path_length=0))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = signed("127.0.0.1", key, "bench root", ca_key, here)
    # The system's too: reading them is a part of every start.
    system = ssl.get_default_verify_paths().cafile
    known = Path(system).read_bytes() if system and Path(system).exists() else b""
    files = [home / name for name in ("roots.pem", "server.pem", "server.key")]
    plain = serialization.NoEncryption()
    files[0].write_bytes(known + ca.public_bytes(PEM))
    files[1].write_bytes(server.public_bytes(PEM))
    files[2].write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
    return files[0], files[1:]


def signed(subject, key, issuer, issuer_key, extension):
    now = datetime.datetime.now(datetime.UTC)
    name = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(extension, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
