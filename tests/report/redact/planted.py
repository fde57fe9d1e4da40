"""Secrets as their makers' documents describe them, in lines as logs have them. Nothing here knows the detector's rules.

``secrets(rng)`` gives one of each kind; ``LINES`` are templates with ``{name}`` (a fitting name of a variable) and ``{secret}``.
"""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = string.ascii_letters + DIGITS
HEX = DIGITS + "abcdef"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"

Draw = Callable[[random.Random], str]


def of(alphabet: str, length: int) -> Draw:
    """So many characters of an alphabet."""
    return lambda rng: "".join(rng.choice(alphabet) for _ in range(length))


def after(prefix: str, alphabet: str, length: int) -> Draw:
    """A prefix and so many characters."""
    body = of(alphabet, length)
    return lambda rng: prefix + body(rng)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(rng: random.Random) -> str:
    """A signed token (RFC 7519)."""
    header = _b64(json.dumps({"alg": "RS256", "typ": "JWT", "kid": of(HEX, 8)(rng)}).encode())
    body = _b64(
        json.dumps({"sub": of(DIGITS, 10)(rng), "iss": "https://id.example.net", "exp": 1893456000}).encode()
    )
    return f"{header}.{body}.{of(URLSAFE, 86)(rng)}"


def uuid(rng: random.Random) -> str:
    """Thirty-two digits in five groups."""
    return "-".join(of(HEX, length)(rng) for length in (8, 4, 4, 4, 12))


def _spread(*parts: Draw | str) -> Draw:
    return lambda rng: "".join(part if isinstance(part, str) else part(rng) for part in parts)


KINDS: dict[str, tuple[str, Draw]] = {
    "hugging face": ("HF_TOKEN", after("hf_", string.ascii_letters, 34)),
    "hugging face org": ("HUGGING_FACE_HUB_TOKEN", after("api_org_", string.ascii_letters, 34)),
    "openai": ("OPENAI_API_KEY", lambda rng: f"sk-{of(ALNUM, 20)(rng)}T3BlbkFJ{of(ALNUM, 20)(rng)}"),
    "openai project": (
        "OPENAI_API_KEY",
        lambda rng: f"sk-proj-{of(URLSAFE, 74)(rng)}T3BlbkFJ{of(URLSAFE, 74)(rng)}",
    ),
    "anthropic": ("ANTHROPIC_API_KEY", lambda rng: f"sk-ant-api03-{of(URLSAFE, 93)(rng)}AA"),
    "openrouter": ("OPENROUTER_API_KEY", after("sk-or-v1-", HEX, 64)),
    "deepseek": ("DEEPSEEK_API_KEY", after("sk-", HEX, 32)),
    "groq": ("GROQ_API_KEY", after("gsk_", ALNUM, 52)),
    "xai": ("XAI_API_KEY", after("xai-", ALNUM, 80)),
    "replicate": ("REPLICATE_API_TOKEN", after("r8_", ALNUM, 37)),
    "perplexity": ("PERPLEXITY_API_KEY", after("pplx-", ALNUM, 48)),
    "nvidia": ("NVIDIA_API_KEY", after("nvapi-", URLSAFE, 64)),
    "cohere": ("COHERE_API_KEY", of(ALNUM, 40)),
    "mistral": ("MISTRAL_API_KEY", of(ALNUM, 32)),
    "w&b": ("WANDB_API_KEY", of(HEX, 40)),
    "databricks": ("DATABRICKS_TOKEN", after("dapi", HEX, 32)),
    "aws key id": ("AWS_ACCESS_KEY_ID", after("AKIA", UPPER + "234567", 16)),
    "aws temporary key id": ("AWS_ACCESS_KEY_ID", after("ASIA", UPPER + "234567", 16)),
    "aws secret": ("AWS_SECRET_ACCESS_KEY", of(BASE64, 40)),
    "aws session": ("AWS_SESSION_TOKEN", after("IQoJb3JpZ2luX2Vj", BASE64, 260)),
    "google api": ("GOOGLE_API_KEY", after("AIza", URLSAFE, 35)),
    "google oauth": ("GOOGLE_OAUTH_ACCESS_TOKEN", after("ya29.", URLSAFE, 140)),
    "google client": ("GOOGLE_CLIENT_SECRET", after("GOCSPX-", URLSAFE, 28)),
    "azure client": ("AZURE_CLIENT_SECRET", _spread(of(ALNUM, 3), "8Q~", of(ALNUM + "_~.-", 34))),
    "azure storage": ("AZURE_STORAGE_KEY", lambda rng: base64.b64encode(rng.randbytes(64)).decode()),
    "azure openai": ("AZURE_OPENAI_API_KEY", of(HEX, 32)),
    "github": ("GITHUB_TOKEN", after("ghp_", ALNUM, 36)),
    "github oauth": ("GH_TOKEN", after("gho_", ALNUM, 36)),
    "github fine-grained": ("GITHUB_TOKEN", _spread("github_pat_", of(ALNUM, 22), "_", of(ALNUM, 59))),
    "gitlab": ("GITLAB_TOKEN", after("glpat-", URLSAFE, 20)),
    "gitlab runner": ("RUNNER_TOKEN", after("glrt-", URLSAFE, 20)),
    "slack bot": (
        "SLACK_BOT_TOKEN",
        _spread("xoxb-", of(DIGITS, 12), "-", of(DIGITS, 13), "-", of(ALNUM, 24)),
    ),
    "slack app": (
        "SLACK_APP_TOKEN",
        _spread("xapp-1-A", of(UPPER + DIGITS, 10), "-", of(DIGITS, 13), "-", of(HEX, 64)),
    ),
    "stripe": ("STRIPE_SECRET_KEY", after("sk_live_", ALNUM, 24)),
    "stripe webhook": ("STRIPE_WEBHOOK_SECRET", after("whsec_", ALNUM, 32)),
    "npm": ("NPM_TOKEN", after("npm_", ALNUM, 36)),
    "pypi": ("TWINE_PASSWORD", after("pypi-AgEIcHlwaS5vcmc", URLSAFE, 150)),
    "docker": ("DOCKER_PASSWORD", after("dckr_pat_", URLSAFE, 27)),
    "telegram": ("TELEGRAM_BOT_TOKEN", _spread(of("123456789", 10), ":AA", of(URLSAFE, 33))),
    "twilio": ("TWILIO_API_KEY", after("SK", HEX, 32)),
    "sendgrid": ("SENDGRID_API_KEY", _spread("SG.", of(URLSAFE, 22), ".", of(URLSAFE, 43))),
    "mailgun": ("MAILGUN_API_KEY", after("key-", HEX, 32)),
    "mailchimp": ("MAILCHIMP_API_KEY", _spread(of(HEX, 32), "-us", of("123456789", 1))),
    "discord": ("DISCORD_TOKEN", _spread("M", of(ALNUM, 23), ".", of(ALNUM, 6), ".", of(URLSAFE, 38))),
    "digitalocean": ("DIGITALOCEAN_TOKEN", after("dop_v1_", HEX, 64)),
    "cloudflare": ("CLOUDFLARE_API_TOKEN", of(URLSAFE, 40)),
    "vault": ("VAULT_TOKEN", after("hvs.", URLSAFE, 90)),
    "terraform": ("TFE_TOKEN", _spread(of(ALNUM, 14), ".atlasv1.", of(ALNUM, 67))),
    "grafana": ("GRAFANA_TOKEN", _spread("glsa_", of(ALNUM, 32), "_", of(HEX, 8))),
    "new relic": ("NEW_RELIC_API_KEY", after("NRAK-", UPPER + DIGITS, 27)),
    "datadog": ("DD_API_KEY", of(HEX, 32)),
    "sentry": ("SENTRY_AUTH_TOKEN", after("sntryu_", HEX, 64)),
    "linear": ("LINEAR_API_KEY", after("lin_api_", ALNUM, 40)),
    "notion": ("NOTION_TOKEN", after("ntn_", ALNUM, 46)),
    "shopify": ("SHOPIFY_ACCESS_TOKEN", after("shpat_", HEX, 32)),
    "square": ("SQUARE_ACCESS_TOKEN", after("EAAA", URLSAFE, 60)),
    "airtable": ("AIRTABLE_API_KEY", _spread("pat", of(ALNUM, 14), ".", of(HEX, 64))),
    "figma": ("FIGMA_TOKEN", after("figd_", URLSAFE, 40)),
    "pinecone": ("PINECONE_API_KEY", _spread("pcsk_", of(ALNUM, 6), "_", of(ALNUM, 63))),
    "langsmith": ("LANGSMITH_API_KEY", _spread("lsv2_pt_", of(HEX, 32), "_", of(HEX, 10))),
    "tailscale": ("TS_AUTHKEY", _spread("tskey-auth-", of(ALNUM, 12), "CNTRL-", of(ALNUM, 32))),
    "hubspot": ("HUBSPOT_TOKEN", lambda rng: f"pat-na1-{uuid(rng)}"),
    "heroku": ("HEROKU_API_KEY", uuid),
    "artifactory": ("ARTIFACTORY_API_KEY", after("AKCp8", ALNUM, 68)),
    "alibaba": ("ALIBABA_CLOUD_ACCESS_KEY_ID", after("LTAI5t", ALNUM, 18)),
    "modelscope": ("MODELSCOPE_API_TOKEN", uuid),
    "jwt": ("SERVICE_ACCOUNT_TOKEN", jwt),
    "password": ("DB_PASSWORD", of(ALNUM + "!#%+*@", 14)),
    "short password": (
        "REDIS_PASSWORD",
        lambda rng: rng.choice(["Sommer", "tiger", "Winter", "dragon"]) + of(DIGITS, 4)(rng),
    ),
    "client secret": ("OIDC_CLIENT_SECRET", of(ALNUM, 32)),
    "vllm key": ("VLLM_API_KEY", of(URLSAFE.replace("-", ""), 24)),
}
"""A variable that holds the secret, and how one is drawn. Source: each maker's documents; GitHub's list of secret scanning patterns."""

NAMED_LINES = (
    "{name}={secret}",
    "export {name}={secret}",
    'export {name}="{secret}"',
    "serve-1  | {name}={secret}",
    "docker run --gpus all -e {name}={secret} -p 8000:8000 vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B",
    "docker run --gpus all --env {name}='{secret}' vllm/vllm-openai:latest",
    '            "Env": ["PATH=/usr/local/bin:/usr/bin", "{name}={secret}", "LANG=C.UTF-8"],',
    '                "{name}={secret}",',
    '  "{name}": "{secret}",',
    '{{"level": "info", "config": {{"{name}": "{secret}", "port": 8000}}}}',
    '{{"log": "env {name}={secret}\\n", "stream": "stdout", "time": "2026-01-16T19:04:51.73Z"}}',
    "  {name}: {secret}",
    '  {name}: "{secret}"',
    "      {name}:  {secret}",
    "    - name: {name}\n      value: {secret}",
    '    - name: {name}\n      value: "{secret}"',
    '    {{"name": "{name}", "value": "{secret}"}},',
    "Environment={name}={secret}",
    'Jun 03 12:00:01 gpu7 vllm[811]: Environment="{name}={secret}"',
    "KeyError: environment was {{'{name}': '{secret}', 'HOME': '/root'}}",
    "    os.environ['{name}'] = '{secret}'",
    "DEBUG 06-03 12:00:00 [envs.py:12] {name} = '{secret}'",
    "Warning  Failed  3s  kubelet  Error: container env {name}={secret} is too long",
    "+ {name}={secret} vllm serve Qwen/Qwen3-8B --port 8000",
    "\x1b[36m(APIServer pid=1)\x1b[0m INFO env: {name}={secret}",
)
"""Lines for every kind: a name tells what it is."""

KEY_LINES = (
    "vllm serve Qwen/Qwen3-8B --api-key {secret} --port 8000",
    "vllm serve Qwen/Qwen3-8B --api-key={secret}",
    "(APIServer pid=1) INFO 06-03 12:00:00 [utils.py:233] non-default args: {{'model_tag': 'x/y', 'api_key': ['{secret}'], 'port': 8000}}",
    "INFO 01-20 21:55:28 api_server.py:651] args: Namespace(host=None, port=8000, api_key='{secret}', lora_modules=None)",
    "        args:\n        - --api-key\n        - {secret}",
    '"Cmd": ["--model", "x/y", "--api-key", "{secret}", "--port", "8000"],',
    "curl http://127.0.0.1:8000/v1/models -H 'Authorization: Bearer {secret}'",
    'curl http://127.0.0.1:8000/v1/models -H "Authorization: Bearer {secret}"',
    "> Authorization: Bearer {secret}",
    "DEBUG:    < X-Api-Key: {secret}",
    "headers: {{'host': '127.0.0.1:8000', 'authorization': 'Bearer {secret}', 'accept': '*/*'}}",
    "Headers([(b'host', b'127.0.0.1:8000'), (b'authorization', b'Bearer {secret}'), (b'accept', b'*/*')])",
    "Headers([(b'x-api-key', b'{secret}'), (b'accept', b'*/*')])",
    "openai.AuthenticationError: Error code: 401 - {{'error': {{'message': 'Incorrect API key provided', 'api_key': '{secret}'}}}}",
    "    client = OpenAI(base_url='http://127.0.0.1:8000/v1', api_key='{secret}')",
    'INFO:     127.0.0.1:50312 - "GET /v1/models?api_key={secret} HTTP/1.1" 200 OK',
    'INFO:     127.0.0.1:50312 - "POST /v1/chat/completions?x=1&access_token={secret} HTTP/1.1" 401 Unauthorized',
    '127.0.0.1 - - [12/Mar/2026:06:11:05 +0000] "GET /health HTTP/1.1" 200 2 "-" "curl/8.5" "Bearer {secret}"',
)
"""Lines for keys without spaces and signs that a URL would need to write otherwise."""

BARE_LINES = (
    "requests.exceptions.HTTPError: 401 Client Error for key {secret}",
    "ValueError: invalid token {secret}",
    "tokens in use: {secret}, none",
    "File \"x.py\", line 3, in <module>\n    login('{secret}')",
    '{{"message": "using {secret}", "level": "error"}}',
    "git clone https://oauth2:{secret}@gitlab.com/group/project.git",
    "pip install --index-url https://__token__:{secret}@pypi.example.net/simple vllm",
    "HTTPS_PROXY=http://svc:{secret}@127.0.0.1:3128",
    "kubectl logs: {secret}",
)
"""Lines that say nothing of what follows: only for kinds that are known by their form."""

_KNOWN_BY_NAME = frozenset(
    (
        "cohere", "mistral", "w&b", "aws secret", "aws session", "azure openai", "cloudflare", "datadog", "heroku",
        "modelscope", "password", "short password", "client secret", "vllm key", "square",
    )
)  # fmt: skip
KNOWN_BY_FORM = KINDS.keys() - _KNOWN_BY_NAME
_NOT_IN_URLS = frozenset({"password", "aws secret", "aws session", "azure storage"})


def planted(seed: int, rounds: int) -> Iterator[tuple[str, str, str]]:
    """Kinds, secrets and the lines that they stand in: every kind in ``rounds`` lines of each sort that fits it."""
    rng = random.Random(seed)
    for kind, (name, draw) in KINDS.items():
        sorts = [NAMED_LINES]
        if kind not in _NOT_IN_URLS:
            sorts.append(KEY_LINES)
        if kind in KNOWN_BY_FORM:
            sorts.append(BARE_LINES if kind not in _NOT_IN_URLS else BARE_LINES[:5])
        for lines in sorts:
            for line in rng.sample(lines, min(rounds, len(lines))):
                secret = draw(rng)
                yield kind, secret, line.format(name=name, secret=secret)


def private_key(rng: random.Random, name: str = "RSA PRIVATE KEY", lines: int = 12) -> list[str]:
    """The lines of a key in PEM (RFC 7468); the last one of the body is short."""
    body = [of(BASE64, 64)(rng) for _ in range(lines)] + [of(BASE64, 22)(rng) + "=="]
    return [f"-----BEGIN {name}-----", *body, f"-----END {name}-----"]
