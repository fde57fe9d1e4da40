"""Users, hosts, addresses and folders in lines as logs have them. Nothing here knows the rules."""

import random
import string
from collections.abc import Iterator

LINES = (
    ('  File "/home/{user}/{folder}/serve_it.py", line 3, in <module>', "user folder"),
    ("cd /mnt/{folder}/models && ls", "folder"),
    ("OSError: [Errno 28] No space left on device: '/home/{user}/.cache/huggingface/hub/tmp_x'", "user"),
    ("{user}@{host}:~$ vllm serve Qwen/Qwen3-8B", "user host"),
    ("[{user}@{host} ~]$ nvidia-smi", "user host"),
    ("uid=1003({user}) gid=1003({user}) groups=1003({user})", "user"),
    ("Accepted publickey for ops from {ip} port 50312 ssh2; USER={user}", "user ip"),
    ('INFO:     {ip}:50312 - "POST /v1/completions HTTP/1.1" 200 OK', "ip"),
    ("(RayWorkerWrapper pid=99, ip={ip}) INFO 06-03 12:00:00 [worker.py:1] ready", "ip"),
    ("{host}:327:537 [0] NCCL INFO Bootstrap : Using eth0:{ip}<0>", "host ip"),
    ("MASTER_ADDR={ip} MASTER_PORT=29500", "ip"),
    (
        "torch.distributed.DistNetworkError: The client socket cannot connect to {host}.corp.{user}.com:29500",
        "host",
    ),
    (
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='{host}', port=8000): Max retries exceeded",
        "host",
    ),
    ("OPENAI_API_BASE=http://{host}:8000/v1", "host"),
    ("Jun  3 12:00:00 {host} vllm[811]: INFO 06-03 12:00:00 [core.py:1] ready", "host"),
    ("srun: error: {host}: task 0: Out Of Memory", "host"),
    ("Linux {host} 6.8.0-50-generic #51-Ubuntu SMP x86_64 GNU/Linux", "host"),
    ("ConnectionRefusedError: [Errno 111] Connect call failed ('{ip}', 8000)", "ip"),
    ("inet6 {ip6}/64 scope global; link/ether {mac} brd ff:ff:ff:ff:ff:ff", "ip6 mac"),
    ("mail {user}@{folder}.org or call", "user"),
    ("HOSTNAME={host}", "host"),
    ("Successfully assigned {folder}/chat-7d9f8b6c5-x2v4q to {host}", "folder host"),
    ('{{"log":"INFO: {ip}:1 - \\"GET / HTTP/1.1\\" 200\\n","host":"{host}"}}', "ip host"),
    ("GPU 0: NVIDIA H100 (UUID: GPU-{uuid})", "uuid"),
    ("Container ID: containerd://{container}", "container"),
)
"""A line, and what in it is private."""


def lines(seed: int, rounds: int) -> Iterator[tuple[list[str], str]]:
    """Lines with what must not be left of each."""
    rng = random.Random(seed)

    def letters(count: int) -> str:
        return "".join(rng.choice(string.ascii_lowercase) for _ in range(count))

    def digits(count: int, alphabet: str = "0123456789abcdef") -> str:
        return "".join(rng.choice(alphabet) for _ in range(count))

    for _ in range(rounds):
        for line, private in LINES:
            values = {
                "user": f"q{letters(7)}",
                "host": f"{letters(4)}-{letters(3)}{rng.randrange(10, 99)}",
                "folder": f"x{letters(6)}-{letters(4)}",
                "ip": f"{rng.choice([10, 100, 172, 192])}.{rng.randrange(1, 255)}.{rng.randrange(255)}.{rng.randrange(1, 255)}",
                "ip6": f"2a02:{digits(4, '123456789')}::{digits(4, '123456789abcdef')}",
                "mac": ":".join(digits(2) for _ in range(6)),
                "uuid": "-".join(digits(count) for count in (8, 4, 4, 4, 12)),
                "container": digits(64),
            }
            yield [values[name] for name in private.split()], line.format(**values)
