"""Which registries does an instance have?"""
import daemons
import kernel
from places import HOSTS, SOURCE, STATE, write

MERGED = "/.scratch/registry/merged"
TLS = f"{STATE}/tls"
AUTHENTICATION = {
    "registry.test": "",
    "auth.test": f"auth: {{htpasswd: {{realm: auth.test, path: {TLS}/htpasswd}}}}",
    "token.test": f'auth: {{token: {{realm: "https://auth-token.test/token", service: token.test, issuer: lab, rootcertbundle: {TLS}/token.crt}}}}',
}


def start_registry(directory: str, host: str, storage: str, *prefix: str) -> None:
    """docker-registry with the images of the lab. Its configuration is NAME.yml in the directory."""
    path = f"{directory}/{host.split('.', maxsplit=1)[0]}.yml"
    write(path, f"""version: 0.1
log: {{accesslog: {{disabled: false}}, level: info}}
storage: {storage}
http: {{addr: "{HOSTS[host]}:443", secret: lab, tls: {{certificate: {TLS}/server.crt, key: {TLS}/server.key}}}}
{AUTHENTICATION[host]}
""")
    daemons.start(directory, host, *prefix, "docker-registry", "serve", path)


def start(directory: str) -> None:
    kernel.overlay(f"{STATE}/registry", "/.scratch/registry", MERGED)
    storage = f"{{filesystem: {{rootdirectory: {MERGED}}}, cache: {{blobdescriptor: inmemory}}, delete: {{enabled: true}}}}"
    for host in AUTHENTICATION:
        start_registry(directory, host, storage)
    daemons.start(directory, "servers", "/usr/bin/python3", f"{SOURCE}/servers/servers.py", STATE)


def answer() -> bool:
    """All of them listen."""
    hosts = ["registry.test", "auth.test", "token.test", "auth-token.test", "fault.test", "badcert.test", "content.test"]
    others = {"plain.test": 80, "proxy.test": 3128}
    return all(daemons.listens(HOSTS[host], port) for host, port in {**dict.fromkeys(hosts, 443), **others}.items())
