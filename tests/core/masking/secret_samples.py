"""Secrets that must be masked and look-alikes that must not. None is valid; all are assembled from pieces, so that
secret scanners do not report this file."""

from __future__ import annotations

BODY = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
HEX = "0123456789abcdef" * 4
JWT = f"eyJ{'hbGciOiJIUzI1NiJ9'}.eyJzdWIiOiIxMjM0NSJ9.{BODY}-_x"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
TELEGRAM = ":AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsawA"
KEY_BLOCK = (
    "-----BEGIN {kind}-----\n"
    "MIIEpAIBAAKCAQEAx5fKqvRmQZ1vY8nH3tW2yLkJp0sDgF4aBcEuXoVi\n"
    "b7Nq9wTzRhUe6MdOyPlKjIhGfDsAzXcVbNmQwErTyUiOpLkJhGfDsAzX\n"
    "c7Vb=\n"
    "-----END {kind}-----"
)

# kind, text before, secret, text after
SECRETS: list[tuple[str, str, str, str]] = [
    ("aws-key", "the id is ", AWS_ID, " in us-east-1"),
    ("aws-key", "temporary ", "ASIA" + "IOSFODNN7EXAMPLE", "."),
    ("aws-key", "pair: ", f"{AWS_ID}:{AWS_SECRET}", " here"),
    ("aws-secret", "aws_secret_access_key = ", AWS_SECRET, "\n"),
    ("aws-secret", "my AWS secret is: ", AWS_SECRET, " ok?"),
    ("anthropic-key", "use ", f"sk-ant-api03-{BODY}-{BODY}_AA", " please"),
    ("anthropic-key", "t-", f"api03-{BODY}-{BODY}_AA", ""),
    ("openai-key", "use ", f"sk-proj-{BODY}_{BODY}", ", please"),
    ("openai-key", "", f"sk-svcacct-{BODY}", ""),
    ("api-key", "(", "sk-abc123def456ghi789jkl012", ")"),
    ("api-key", "'", "sk-abcdefghijklmnop", "'"),
    ("api-key", "", f"sk-live-{BODY}", " "),
    ("api-key", "", "sk-A1b2_C3d4-E5f6_G7h8-I9", "!"),
    ("api-key", "mail ", "key-3ax6xnjp29jd6fds4gc373sgvjxteol0", ""),
    ("api-key", "with ", "token-abc123def456ghi7", " now"),
    ("api-key", "with ", "token-abcdefghijklmnopqrstuvwxyz", " now"),
    ("api-key", "with ", "API-0123456789abcdef", " now"),
    ("bearer-token", "send Bearer ", f"{BODY}", " with it"),
    ("bearer-token", "bearer ", "abc.def-123_456~7/8+9==", "."),
    ("url-password", "postgres://bob:", "hunter2", "@db.example.com:5432/app"),
    ("url-password", "redis://:", "p%40ss@word", "@cache"),
    ("url-password", "https://", f"gho_{BODY[:36]}:x-oauth-basic", "@github.com"),
    ("github-token", "", f"ghp_{BODY[:36]}", ""),
    ("github-token", "https://", f"gho_{BODY[:36]}", "@github.com/x/y.git"),
    ("github-token", "", f"ghs_{BODY[:36]}", " "),
    ("github-token", "", f"github_pat_11ABCDEFG0{BODY}_{BODY}", " "),
    ("threadline-token", "", f"tl_acme-2_{HEX[:32]}{HEX[:32]}", " "),
    ("gitlab-token", "", "glpat-" + "a1B2c3D4e5F6g7H8i9J0", " "),
    ("slack-token", "", f"xoxb-123456789012-123456789012-{BODY[:24]}", " "),
    ("slack-token", "", f"xoxp-123456789012-{BODY[:24]}", " "),
    ("slack-token", "", f"xapp-1-A012345678-{BODY}", " "),
    ("slack-webhook", "https://hooks.slack.com/services/", f"T01234567/B01234567/{BODY[:24]}", " "),
    ("jwt", "jwt ", JWT, ". Next"),
    ("private-key", "", KEY_BLOCK.format(kind="RSA PRIVATE KEY"), "\nthanks"),
    ("private-key", "", KEY_BLOCK.format(kind="OPENSSH PRIVATE KEY"), ""),
    ("private-key", "", KEY_BLOCK.format(kind="PRIVATE KEY").replace("\n", "\\n"), "\\n"),
    ("private-key", "", KEY_BLOCK.format(kind="PGP PRIVATE KEY BLOCK").replace("\nM", "\nVersion: 2\n\nM"), "\n"),
    ("private-key", "", KEY_BLOCK.format(kind="EC PRIVATE KEY")[:120], " and then it was cut off"),
    ("google-key", "?key=", f"AIzaSy{BODY[:33]}", "&x=1"),
    ("google-key", "", f"ya29.a0{BODY}", " "),
    ("stripe-key", "", "sk_" + f"live_{BODY[:24]}", " "),
    ("stripe-key", "", "rk_" + f"test_{BODY[:24]}", " "),
    ("npm-token", "//registry/:_auth ", f"npm_{BODY[:36]}", "\n"),
    ("pypi-token", "", f"pypi-AgEIcHlwaS5vcmc{BODY}-{BODY}", "\n"),
    ("telegram-token", f"bot123456789{TELEGRAM[:3]}", TELEGRAM[3:], "/getMe"),
    ("sendgrid-key", "", f"SG.{BODY[:22]}.{BODY}", " "),
    ("twilio-key", "", f"SK{HEX[:32]}", " "),
    ("huggingface-token", "", f"hf_{BODY[:34]}", " "),
    ("authorization", "Authorization: Basic ", "dXNlcjpwYXNz", "\r\n"),
    ("authorization", "curl -H 'authorization: token ", "abcdef12", "'"),
    ("authorization", '{"Authorization": "', "Bearer abc", '"}'),
    ("cookie", "Set-Cookie: ", "sid=abc123; Path=/; HttpOnly", "\r\nHost: x"),
    ("password", "password=", "hunter2", " is bad"),
    ("password", "DB_PASSWORD: ", "correct-horse-7", "\n"),
    ("password", "password = '", "tr0ub4dor & 3", "';"),
    ("password", '{"user": "bob", "passwd" : "', "hunter two", '"}'),
    ("password", '{\\"password\\": \\"', "hunter two", '\\"}'),
    ("password", '{"password": "', 'hun\\"ter', '"}'),
    ("secret", "client_secret=", "0123abcd4567", "&grant_type=x"),
    ("token", "?access_token=", "abc123def", "&x=1"),
    ("token", '"refreshToken":"', "any value at all", '"'),
    ("api-key", "X-Api-Key: ", "abc123def456", "\r\n"),
    ("api-key", "OPENAI_API_KEY=", "abcdef1", "\n"),
    ("api-key", '"private_key": "', "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n", '", "x": 1'),
]

LOOK_ALIKES: list[str] = [
    "the key-value store, token-based and api-first design, sk-learn, task-force, risk-averse, monkey-patch",
    "key-responsibilities of an api-gateway-controller, token-authentication and sk-learn-contrib-2024 pages",
    "https://example.com/blog/api-design-best-practices-2024-edition?page=2#key-takeaways",
    "550e8400-e29b-41d4-a716-446655440000",
    "token-550e8400-e29b-41d4-a716-446655440000 is the name of a job",
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709, md5 d41d8cd98f00b204e9800998ecf8427e",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "the secret commit: da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E",
    "max_tokens: 4096x, token_count=1234abcd, prompt_tokens=12ab34cd, public_key = 'ssh-rsa AAAAB3'",
    "nextPageToken=abc123def456 and continuation_token: abc123def456",
    "password: must be at least 8 characters. The token: a piece of text. secret = required",
    "token = request.headers['x-token']; password = os.environ['PW1']; api_key = settings.api_key",
    "PASSWORD=$PASSWORD TOKEN=${TOKEN} password: \"${PW}\" 'password': '<your password>' token: {{token}}",
    "Bearer authentication and basic understanding; the bearer token-based-authentication scheme",
    "https://example.com:8080/a@b and http://user@example.com/ and mailto:bob@example.com",
    "a -----BEGIN CERTIFICATE----- or -----BEGIN PUBLIC KEY----- line, and -----BEGIN RSA PRIVATE KEY----- in prose",
    "eyJ is how base64 of an object begins; eyJhbGciOiJIUzI1NiJ9 alone is a header",
    "call_a1B2c3D4e5F6g7H8i9J0k1L2, msg_01XFDUDYJgAACzvnptvVoYEL, toolu_01A09q90qw90lq917835lq9",
    "task-1234567890abcdef1234 of monkey-1234567890abcdef1234, PWD=/home/user1/src2 and OLDPWD=/home/user1/src3",
    "fetch(url, {credentials: 'include', headers: {\"Authorization\": \"Bearer \" + token}}), {'pwd': '/home/user1'}",
    "api_key=\"YOUR_API_KEY\", password: 'your-password', token = '...', Authorization: Bearer YOUR_TOKEN, pwd: '***'",
    "/usr/local/lib/python3.11/site-packages/threadline/core/masking/__init__.py",
    "12345678:AAPL stock, 10:AA battery, the AKIA acronym, SG.1 and hf_model",
    "Eine Datenschutz-Grundverordnung; 東京都の鍵-値ストア; ключ-значение 👨‍👩‍👧 ❤️",
    "100% sure, 50%ab, C:\\new\\table\\users, \\begin{token}",
    "",
]
