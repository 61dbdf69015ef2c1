"""Makes a deployment's credentials, and registers its nodes with the SuperLink.

    python credentials.py make FOLDER NODES      authority.crt, link.crt, link.key, node_N.key, .pub
    python credentials.py register FOLDER NODES  prints JSON with each `node-id`

The certificate is for 127.0.0.1, and its authority's key is not kept. `register` does what
`flwr supernode register` does for each key, in one process; FLWR_HOME has the configuration.
"""

import datetime
import ipaddress
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAYS = 30


def make(folder: pathlib.Path, nodes: int) -> None:
    """Writes a certificate with its authority, and a pair of keys for each node."""
    authority_key, link_key = ec.generate_private_key(ec.SECP384R1()), _new_key(folder / "link.key")
    authority = _certificate("tff_ssl authority", authority_key.public_key(), authority_key, None)
    link = _certificate("127.0.0.1", link_key.public_key(), authority_key, authority.subject)
    for name, certificate in (("authority", authority), ("link", link)):
        content = certificate.public_bytes(serialization.Encoding.PEM)
        (folder / f"{name}.crt").write_bytes(content)
    for node in range(nodes):
        public = _new_key(folder / f"node_{node}.key").public_key()
        ssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        (folder / f"node_{node}.pub").write_bytes(public.public_bytes(*ssh))


def _new_key(path: pathlib.Path) -> ec.EllipticCurvePrivateKey:
    """A new private key, which only this user may read."""
    key = ec.generate_private_key(ec.SECP384R1())
    is_node = path.name.startswith("node")
    form = serialization.PrivateFormat.OpenSSH if is_node else serialization.PrivateFormat.PKCS8
    none = serialization.NoEncryption()
    path.touch(0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
    return key


def _certificate(name, public_key, signing_key, issuer) -> x509.Certificate:
    """A certificate for 127.0.0.1, or of an authority if it has no issuer."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), False)
    )
    return builder.sign(signing_key, hashes.SHA256())


def register(folder: pathlib.Path, nodes: int) -> None:
    """Registers the nodes' public keys."""
    from flwr.cli.app import app as cli

    for node in range(nodes):
        key = str(folder / f"node_{node}.pub")
        cli(["supernode", "register", key, "--format", "json"], standalone_mode=False)


if __name__ == "__main__":
    {"make": make, "register": register}[sys.argv[1]](pathlib.Path(sys.argv[2]), int(sys.argv[3]))
