"""Writes N self-signed P-256 certificates for site-0.example and so on, chain and key in one file each.

    certificates.py DIRECTORY N
"""
import datetime
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
directory.mkdir(exist_ok=True)
now = datetime.datetime.now(datetime.timezone.utc)
for n in range(count):
    host = f"site-{n}.example"
    path = directory / f"{n}.pem"
    if path.exists():
        continue
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(n + 1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path.write_bytes(
        certificate.public_bytes(pem)
        + key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
