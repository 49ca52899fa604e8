"""A certificate authority and certificates of its own, made with the openssl program when a test asks."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


@dataclass(frozen=True)
class Authority:
    """``ca`` is its PEM file; certificates are made below ``folder``."""

    folder: Path
    ca: Path
    key: Path

    def certificate(self, *names: str) -> tuple[Path, Path]:
        """Certificate and key files for DNS names and addresses."""
        stem = self.folder / ("-".join(names).replace("*", "star").replace(":", "_") or "empty")
        chain, key, request, extension = (stem.with_name(stem.name + end) for end in (".pem", ".key", ".csr", ".ext"))
        if not chain.exists():
            subject = ",".join(f"{'IP' if name.replace('.', '').isdigit() or ':' in name else 'DNS'}:{name}" for name in names)
            extension.write_text(f"subjectAltName={subject}\n")
            _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test",
                     "-keyout", str(key), "-out", str(request))  # fmt: skip
            _openssl("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self.key), "-CAcreateserial",
                     "-days", "3650", "-extfile", str(extension), "-out", str(chain))  # fmt: skip
        return chain, key

    def server(self, *names: str) -> ssl.SSLContext:
        """Context of a server with a certificate for those names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate(*names))
        return context

    def client(self) -> ssl.SSLContext:
        """Context of a client that trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.ca))


def authority(folder: Path) -> Authority:
    """A new one in ``folder``."""
    ca, key = folder / "ca.pem", folder / "ca.key"
    _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650",
             "-subj", "/CN=test authority", "-addext", "basicConstraints=critical,CA:TRUE",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", str(key), "-out", str(ca))  # fmt: skip
    return Authority(folder, ca, key)
