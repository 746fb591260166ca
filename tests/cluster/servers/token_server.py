"""Who may pull what from token.test? Answers https://auth-token.test/token with signed tokens.

Repositories under public/ (and, where the question is to authn.nvidia.com, nvidia/) need no credentials; every other one needs basic credentials
of one of LOGINS. A token names exactly the scope that was asked for and lives for five minutes; those for brief/ live for three or four seconds
(docker-registry allows clocks to differ by 60 seconds, so their time is in the past). The scope "private/..." is granted to nobody: the token
is valid, but empty.
"""

import base64
import json
import ssl
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

# Documented in tests/cluster/README.md; the others as NGC has it: a name for everybody, and a key as the password.
LOGINS = (("alice", "secret"), ("$oauthtoken", "ngc-key"), ("$oauthtoken", "KEY"))


class TokenServer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    key = chain = None

    @classmethod
    def configured(cls, tls):
        with open(tls + "token.key", encoding="ascii") as stream:
            cls.key = stream.read()
        with open(tls + "token.crt", encoding="ascii") as stream:
            cls.chain = [base64.b64encode(ssl.PEM_cert_to_DER_cert(stream.read())).decode()]
        return cls

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        # The same registry stands behind both names: who has a login asks as for NVIDIA's, who has none as the registry says.
        services = ("token.test", "registry") if self.headers.get("Host") == "authn.nvidia.com" else ("token.test",)
        if url.path != "/token" or query.get("service", [""])[0] not in services:
            return self.answer(404, {"details": "no such token service"})
        given = self.headers.get("Authorization")
        users = {"Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(): user for user, password in LOGINS}
        if given and given not in users:
            return self.answer(401, {"details": "incorrect username or password"})
        public = ("public/", "nvidia/") if self.headers.get("Host") == "authn.nvidia.com" else "public/"
        access = []
        for scope in query.get("scope", []):
            kind, name, actions = scope.split(":", 2)
            if name.startswith("private/") or (not given and not name.startswith(public)):
                continue
            access.append({"type": kind, "name": name, "actions": [a for a in actions.split(",") if a == "pull" or name.startswith("brief/")]})
        if query.get("scope") and not access and not given:
            return self.answer(401, {"details": "unauthorized"})
        import jwt  # takes longer than all else that a lab's servers import, and most labs ask for no token
        now = int(time.time())
        lifetime = -56 if any(entry["name"].startswith("brief/") and "push" not in str(query) for entry in access) else 300
        claims = {"iss": "lab", "sub": users.get(given, ""), "aud": "token.test", "exp": now + lifetime, "nbf": now - 10, "iat": now,
                  "jti": str(now), "access": access}
        token = jwt.encode(claims, self.key, algorithm="RS256", headers={"x5c": self.chain})
        return self.answer(200, {"token": token, "expires_in": 300})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="auth-token.test"')
        self.end_headers()
        self.wfile.write(body)
