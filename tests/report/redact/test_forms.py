"""Keys in forms that have no sign between a name and its value, in base 64 and in colour, and keys known by their form."""

import base64
import random
import string

import pytest

from fitserve.report.redact.redactor import Redactor

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def drawn(length: int, letters: str = ALNUM, seed: int = 5) -> str:
    """Characters drawn from an alphabet."""
    return "".join(random.Random(seed).choices(letters, k=length))


SECRETS = [drawn(32, HEX), drawn(40), drawn(9) + "4!" + drawn(4, seed=6), "wrtFAvTCbPPNPC!xKG"]
FORMS = [
    "vllm serve m \\\n  --api-key \\\n  {} \\\n  --port 3",
    "vllm serve m `\r\n  --api-key `\r\n  {} `\r\n  --port 3",
    "  DB_PASSWORD: |\n    {}",
    "  DB_PASSWORD: >-\n    {}\n  PORT: 3",
    "apiVersion: v1\nkind: Secret\nstringData:\n  hub: {}\n  other: 'x'\ntype: Opaque",
    'api_version: v1, "stringData": {{"hub": "{}"}}',
    "ENV HUB_TOKEN {}",
    "setenv HUB_TOKEN {}",
    'setx HUB_TOKEN "{}"',
    "set -gx HUB_TOKEN {}",
    "localhost:7:7 [0] NCCL INFO HUB_TOKEN set by environment to {}",
    "HUB_TOKEN\t{}",
    "HUB_TOKEN      {}",
    "| HUB_TOKEN | {} |",
    "| `HUB_TOKEN` | `{}` |",
    "<HUB_TOKEN>{}</HUB_TOKEN>",
    '{{\\"name\\": \\"HUB_TOKEN\\", \\"value\\": \\"{}\\"}}',
    '{{"log":"the password is {}\\n"}}',
    "hub_token\n  Input should be a valid string [type=string_type, input_value='{}', input_type=str]",
    'variable "hub_token" {{\n  default = "{}"\n}}',
    "machine huggingface.co\n  login deploy\n  password {}",
    "huggingface_hub.login('{}')",
    "echo {} | docker login --username deploy --password-stdin",
    "Incorrect API key provided: {}. Keys are made in the console.",
    "the password is {}",
    "hub_token -> {}",
    "mc alias set store http://localhost:9000 admin {}",
    "echo {} | gh auth login --with-token",
    "localhost:5432:app:deploy:{}",
    "git -c http.extraHeader='Authorization: token {}' clone",
    "using token {} for the download",
]


@pytest.mark.parametrize("secret", SECRETS, ids=["hex", "letters", "signs", "no digit"])
@pytest.mark.parametrize("form", FORMS)
def test_forms_without_a_sign(form: str, secret: str) -> None:
    """The value is gone, and what stands before it stays."""
    out = Redactor().text(form.format(secret))

    assert secret not in out
    assert form.format("\0").partition("\0")[0] == out[: len(form.format("\0").partition("\0")[0])]
    assert out == Redactor().text(out)


CARRIERS = ["", "vllm-1  | ", "2026-01-16T19:04:51.736501814Z stderr F ", "[pod/chat-0/vllm] "]
SEVERAL = [
    "serve m \\\n  --api-key \\\n  {} \\\n  --port 3",
    "  DB_PASSWORD: |\n    {}\n  PORT: 3",
    "stringData:\n  hub: {}\ntype: Opaque",
    "args:\n  - --api-key\n  - {}\n  - --port",
    '{{"env": [\n  {{\n    "name": "HUB_TOKEN",\n    "value": "{}"\n  }}]}}',
    "machine huggingface.co\n  login deploy\n  password {}",
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("form", SEVERAL)
def test_forms_of_several_lines_behind_a_carrier(form: str, carrier: str, newline: str) -> None:
    """What a log's carrier puts before each line, and Windows' line ends, stand between a name and its value."""
    text = "".join(carrier + line + newline for line in form.format(SECRETS[0]).split("\n"))

    out = Redactor().text(text)

    assert SECRETS[0] not in out
    assert text.count(newline) == out.count(newline)
    assert form.format("password-1").split("\n")[-1].strip() in out


@pytest.mark.parametrize(
    "text",
    [
        "model.layers.3.self_attn.qkv_proj key=model.layers.12.mlp.experts.w13_weight_scale_2 not in params",
        "HF_TOKEN  Hugging Face access token; API_KEY | the key of the server",
        "ENV VLLM_USAGE_SOURCE production-docker-image",
        "unexpected token 17 at position 123456789012; token ids; the secret key was not found",
        "password authentication failed; the token is invalid; Using token from the environment",
        "data:\n  max-model-len: '32768'\n  served-name: interactive-model\n",
        "vllm serve m --api-key \\\n  --port 8000",
    ],
)
def test_forms_without_a_secret_stay(text: str) -> None:
    """Nothing says that these are drawn."""
    assert text == Redactor().text(text)


TOKENS = [
    "$2b$12$" + drawn(53),
    "$6$" + drawn(16) + "$" + drawn(86),
    "https%3A%2F%2Fhooks.slack.com%2Fservices%2FT" + drawn(10) + "%2FB" + drawn(10) + "%2F" + drawn(24),
    "IQoJb3JpZ2luX2Vj" + drawn(180, ALNUM + "+/") + "==",
    "csk-" + drawn(48, string.ascii_lowercase + string.digits),
    "esecret_" + drawn(28),
    "sk_" + drawn(48, HEX),
    "-".join(["ms", *(drawn(length, HEX) for length in (8, 4, 4, 4, 12))]),
    "secret_" + drawn(20) + "_" + drawn(32) + "." + drawn(32),
    "AKLT" + drawn(44),
    "EAAA" + drawn(60),
    "jina_" + drawn(60),
    "fm2_" + drawn(120, ALNUM + "+/"),
    "e2b_" + drawn(40, HEX),
    "fc-" + drawn(32, HEX),
    "oy2" + drawn(43, string.ascii_lowercase + string.digits),
    "rnd_" + drawn(32),
    "napi_" + drawn(64, string.ascii_lowercase + string.digits),
]


@pytest.mark.parametrize("token", TOKENS, ids=[token[:8] for token in TOKENS])
def test_tokens_by_their_form(token: str) -> None:
    """Nothing but its form says what it is; no part of it is left."""
    out = Redactor().text(f"ValueError: refused '{token}' by the server")

    assert [] == [token[at : at + 10] for at in range(len(token) - 9) if token[at : at + 10] in out]
    assert out.startswith("ValueError: refused '")
    assert out.endswith("' by the server")


@pytest.mark.parametrize(
    "plain",
    [
        f"HF_TOKEN=hf_{drawn(34)}",
        f'{{\n  "auths": {{"nvcr.io": {{"password": "{drawn(24)}"}}}}\n}}',
        f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(64)}\n{drawn(64)}\n-----END RSA PRIVATE KEY-----\n",
        "https://deploy:hunter2@db.internal.example/x",
        "ssh mkessler@10.20.30.40",
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "echo {} | base64 -d", "  hub: {}", "/v1/{}?x=1", '{{"data":"{}"}}']
)
@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_what_is_private(plain: str, around: str, alphabet: object) -> None:
    """What would be hidden plainly is hidden as a whole in base 64."""
    encoded = alphabet(plain.encode()).decode()  # type: ignore[operator]

    assert around.format("encoded-1") == Redactor().text(around.format(encoded)).replace(
        "secret-1", "encoded-1"
    )


@pytest.mark.parametrize(
    "plain", ["the quick brown fox jumps over it", '{"max_model_len": 32768, "dtype": "auto"}']
)
def test_base64_of_what_is_not_stays(plain: str) -> None:
    """Base 64 by itself is no secret."""
    encoded = base64.b64encode(plain.encode()).decode()

    assert f"x {encoded} y" == Redactor().text(f"x {encoded} y")


ESCAPES = ["\x1b", "\\x1b", "\\u001b", "\\033", "^[", "#033"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_colours_hide_nothing_and_stay(escape: str) -> None:
    """Colours between a name and its value, at its edges and inside of it; each is still there, in order."""
    on, bold, off = f"{escape}[36m", f"{escape}[1;33m", f"{escape}[0m"
    key = drawn(24)

    text = f"{on}with HUB_TOKEN{off}={bold}{key[:9]}{off}{key[9:]}{on} from {bold}10.1.2.3{off}:80\n{on}x{off} 3\n"

    assert (
        f"{on}with HUB_TOKEN{off}={bold}secret-1{off}{on} from {bold}198.18.0.1{off}:80\n{on}x{off} 3\n"
        == Redactor().text(text)
    )


PLACES = [
    ("ssh {}@10.20.30.40", "mkessler"),
    ("otpauth://totp/acme:{}?issuer=x", "mk@initech.com"),
    ("postgresql://deploy:pa@ss4word@{}/app", "db.initech.internal"),
    ('{{"private_key_id":"{}","x":1}}', "5f2b8c9d0e" * 4),
    ('{{"type":"service_account","project_id":"{}"}}', "initech-prod"),
    ("sudo: {} : TTY=pts/0 ; PWD=/opt ; USER=root", "mkessler"),
    ("Accepted publickey for {} from 10.20.30.40 port 22", "mkessler"),
    ("file:///home/{}/serve_it.py", "mkessler"),
    ("/lustre/users/{}/x /hpc/home/{}/x /global/homes/m/{}/x", "mkessler"),
    ("\\\\wsl$\\Ubuntu\\home\\{}\\x", "mkessler"),
    ("cannot open D:\\{}\\models and C:\\\\work\\\\{}\\\\run_it.py", "acme-merger"),
    ("\\\\nas01\\{}\\models", "acme-merger"),
    ("/opt/{}/x /proj/{}/x /dbfs/{}/x /p/scratch/{}/x", "acme-merger"),
    ("GET /files?path=%2Fdata%2F{}%2Fx HTTP/1.1", "acme-merger"),
    ("s3://weights-of-us/{}/x", "acme-merger"),
    ("--master-addr {} --nnodes 2", "dgx20"),
    ("SLURM_NODELIST={}", "dgx-20"),
    ("SLURMD_NODENAME={}", "dgx20"),
    ("Failed to connect to {} port 8000", "dgx20"),
    ("store = TCPStore('{}', 29500)", "dgx20"),
    ("The client socket has failed to connect to [{}]:29500 (errno: 110)", "dgx20"),
    ("ssh -p 22 {} nvidia-smi", "dgx20"),
    ("<6>Jan  1 10:10:10 {} kernel: oom", "dgx20"),
    ("no_proxy=localhost,gpu-3.{}.private", "initech"),
    ("node-{}:29500 and eth_{}", "192.168.7.9"),
    ("NET/Socket : Using [0]ens3f0:{}%ens3f0<0>", "2a01:4f8:1:2:3:4:5:6"),
    ('INFO:     {}:50312 - "GET / HTTP/1.1" 200 OK', "2001:db9:1:2:3:4:5:6"),
    ("GPU UUID: {}", "07a91dec-697e-fb31-1a12-7ed31541a165"),
    ("GPU-{}", "07A91DEC-697E-FB31-1A12-7ED31541A165"),
    ("docker logs -f {}", "6c743c08e31b"),
    ("/var/lib/docker/containers/{}/x-json.log", "6c743c08e31b" * 5 + "6c74"),
    ("        - name: CUSTOMER_ID\n          value: {}", "acme-merger"),
    ("environ({{'CUSTOMER_NAME': '{}'}})", "acme-merger"),
    ("ENV CUSTOMER_NAME={}", "acme-merger"),
    ("  CUSTOMER_NAME: {}", "acme-merger"),
    ("CompletionRequest(model='m', prompt='{}', best_of=None)", "Dear doctor"),
    ("ChatMessage(role='assistant', content=\"{}\")", "Dear doctor"),
    ("EmbeddingRequest(model='m', input=['{}', '{}'])", "Dear doctor"),
    ('    out = llm.generate("{}")', "Dear doctor"),
    ("NewRequestData(req_id=x,prompt_token_ids=[{}],mm_kwargs=[])", "9707, 11, 1879, 0"),
    ('{{"prompt_token_ids": [{}], "n": 1}}', "9707, 11, 1879, 0"),
    ('{{"model": "m", "prompt": [{}]}}', "9707, 11, 1879, 0"),
    ("input_ids: tensor([{}], device='cuda:0')", "9707, 11, 1879, 0"),
]


@pytest.mark.parametrize(("form", "private"), PLACES, ids=[form[:50] for form, _ in PLACES])
def test_people_places_and_contents(form: str, private: str) -> None:
    """What is private is gone; the words before it stay."""
    head = form.format(*["\0"] * 4).partition("\0")[0]

    out = Redactor().text(form.format(*[private] * 4))

    assert private not in out
    assert [] == [word for word in head.split() if word.isalpha() and word not in out]
    assert out == Redactor().text(out)


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/ OLDPWD=/opt/venv/bin",
        "/opt/venv/lib/python3.12/site-packages/vllm/engine/arg_utils.py /app/serve.py",
        "stop_token_ids=[151645, 151643, 1], max_num_batched_tokens=[1, 2, 3], num_tokens: [4, 5, 6]",
        "input shape (4096, 4096, 3); block_ids=([1, 2, 3],)",
        "connection refused; connected to server; failed to connect to localhost:8000",
        "error C:1 and D: 3, a:\\nb and {'x': 'True:\\\\nFalse'}",
        "uuid: 4; device_uuid=None",
        "docker logs vllm; docker run --gpus all vllm/vllm-openai:v0.10.0",
        "'BLOCK_SIZE_M': 16, 'GROUP_SIZE_M': '64'",
    ],
)
def test_ordinary_words_beside_them_stay(text: str) -> None:
    """Words that stand where names may stand."""
    assert text == Redactor().text(text)


def test_a_rule_that_reads_on_keeps_the_others_at_work() -> None:
    """What a rule over several lines finds ahead of it hides nothing that stands before that."""
    option = 'serve --api-key alpha-bravo-9\n{"content": "Dear doctor"} serve --api-key delta-echo-77\n'
    manifest = "stringData:\n  a: alpha-bravo-9\n---\nuser prompt='Dear doctor'\n---\nstringData:\n  b: delta-echo-77\n"

    found = [Redactor().text(text) for text in (option, manifest)]

    assert [] == [
        word for out in found for word in ("alpha", "doctor", "delta") if word in out or "text-1" not in out
    ]


ROWS = [
    "vllm serve m --port 1 --api-key {} {} {} | tee x.log",
    "vllm serve m --api-key {} \\\n  {} \\\n  {} \\\n  --port 1",
    "['vllm', 'serve', 'm', '--api-key', '{}', '{}', '{}', '--port', '1']",
    '["--api-key", "{}", "{}", "{}", "--port"]',
    "args:\n  - --api-key\n  - {}\n  - {}\n  - {}\n  - --port\n  - '1'",
    "api-key:\n  - {}\n  - {}\n  - {}\nport: 1",
    '{{\n  "api_key": [\n    "{}",\n    "{}",\n    "{}"\n  ],\n  "port": 1\n}}',
]


@pytest.mark.parametrize("form", ROWS)
def test_every_key_of_a_row(form: str) -> None:
    """The option takes several keys; what follows them stays."""
    keys = ["alpha-one", "beta-two", "gamma3"]

    assert form.format("secret-1", "secret-2", "secret-3") == Redactor().text(form.format(*keys))


@pytest.mark.parametrize(
    "text",
    [
        "usage: vllm serve [--api-key API_KEY [API_KEY ...]] [--api-server-count N]",
        "error: argument --api-key: expected at least one argument",
        "use --api-key to require one of these of each client",
        "['--api-key', '--port', '8000']",
        "vllm serve m --api-key $KEY $OTHER --port 8000 > serve.log 2>&1",
    ],
)
def test_no_key_in_a_row(text: str) -> None:
    """Words behind the option that are no keys."""
    assert text == Redactor().text(text)


def test_every_key_of_a_row_in_a_value() -> None:
    """The same in a record's command."""
    command = ["vllm", "serve", "m", "--api-key", "alpha-one", "beta-two", "--port", "1"]

    assert ["vllm", "serve", "m", "--api-key", "secret-1", "secret-2", "--port", "1"] == Redactor().value(
        command
    )


@pytest.mark.parametrize(
    "words",
    ["curl x ", "redis-cli ", "nvidia-smi ", "/home/a/b", "api_key: a1 ", "Cookie: a=b;", "$2b$", "text='"],
)
def test_a_long_line_of_beginnings_comes_to_an_end(words: str) -> None:
    """What a pattern begins with, thousands of times in a line, costs no more than its length."""
    text = words * (60_000 // len(words)) + "\nUsing max model len 131072\n"

    assert Redactor().text(text).endswith("\nUsing max model len 131072\n")


@pytest.mark.parametrize(
    "path",
    [
        "/opt/pytorch/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289",
        "/opt/rocm-6.3.0/lib/libamdhip64.so.6 /opt/rocm/bin/rocm-smi",
        "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
        "/opt/conda/lib/libstdc++.so.6 /opt/nvidia/entrypoint.d/10-banner.sh",
        "GET /v1/users/me HTTP/1.1 and GET /api/users/list",
        "Accuracy R:/P and C:\\Windows\\System32 and b'\\\\x00\\\\x00\\\\x00'",
        "C:\\Python312\\lib and {'connection': 'keep-alive'}",
    ],
)
def test_places_of_every_installation_stay(path: str) -> None:
    """Folders of vendors, libraries, routes and bytes are no one's."""
    assert path == Redactor().text(path)


def test_code_behind_a_name_is_hidden_nowhere_else() -> None:
    """A line of a program in a traceback teaches nothing: its words stand in many others."""
    text = 'api_key = helpers.load("x")\nsecret: some_setting\nvalue = helpers.load("y"), some_setting\n'

    assert text.splitlines()[2] == Redactor().text(text).splitlines()[2]
