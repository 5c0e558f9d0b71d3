"""How much of a relay's link carries models of members that reach each other through it alone.

    python -m benchmarks.relay                      # 30 Mbit/s, 5 MB
    python -m benchmarks.relay --megabits 100 --megabytes 20 --delay-ms 40

One host has a link that is so fast each way; seven others reach nobody but that one. With --delay-ms all that
goes to it or comes from it takes so much longer. `direct` sends models to the relay itself, which is all that
its link can do; `pair` from one host to another; `pairs` from three to three others at once; `star` from six
to the seventh, and `back` from that to the six, as if it aggregated. A share is what arrives of models per
second, of the megabits. Prints one JSON object; ends with 1 if a line on standard error says FAIL. Needs the
right to make network namespaces.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.endurance import Check, all_hold
from plexus.live.fleet.shaping import Proxy, Route, Way
from plexus.live.identity.admission import Admission
from plexus.live.identity.session_file import Session
from plexus.live.models import LiveModel, seal
from plexus.live.transport.limits import Limits
from plexus.live.transport.receiving import Buffers
from tests.live.ends import End
from tests.live.netns import why_not
from tests.live.party import Party
from tests.live.star import Star, star

HOSTS, PORT = 8, 7000
RELAY = 1
WAYS: dict[str, dict[int, list[int]]] = {
    "direct": {2: [1]},
    "pair": {2: [3]},
    "pairs": {2: [3], 4: [5], 6: [7]},
    "star": {sender: [8] for sender in range(2, 8)},
    "back": {8: list(range(2, 8))},
}
"""Who sends to whom."""
LEAST_SHARE = 0.7


async def host(home: Path, size_bytes: int, relay: str, delay_s: float) -> None:
    """One host: says its key, then sends what standard input says."""
    session = msgspec.msgpack.decode((home.parent / "session.bin").read_bytes(), type=Session)
    end = End(Admission(home, session), size_bytes)
    end.buffers = Buffers(size_bytes, Limits().memory_bytes)
    if relay:
        reason = await end.hub.dialler.introduce((relay, PORT))
        assert reason is None, reason
    elif delay_s:
        await end.open(("127.0.0.1", PORT))
        proxy = Proxy(end.address, lambda _: Route(Way(delay_s), Way(delay_s)))
        await proxy.listen(("10.77.0.1", PORT))
    else:
        await end.open(("0.0.0.0", PORT))
    print(end.key.hex(), flush=True)
    data = bytes(size_bytes)
    model = LiveModel(memoryview(data), seal(data))
    while line := await asyncio.to_thread(sys.stdin.readline):
        keys, count = json.loads(line)
        for _ in range(count):
            end.fates.clear()
            for key in keys:
                end.hub.send_model(bytes.fromhex(key), b"a model", model, "model")
            while len(end.fates) < len(keys):
                await asyncio.sleep(0.002)
            assert all(fate == "sent" for _, fate in end.fates), end.fates
        end.models.clear()
        print("done", flush=True)


async def order(process: Process, keys: list[str], count: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([keys, count]).encode() + b"\n")
    assert await process.stdout.readline() == b"done\n", "a host failed"


async def measure(net: Star, party: Party, options: argparse.Namespace) -> dict[str, float]:
    """The share of the relay's link, by way."""
    size_bytes, link_bytes_per_s = int(options.megabytes * 1e6), options.megabits * 1e6 / 8
    (party.directory / "session.bin").write_bytes(msgspec.msgpack.encode(party.session))
    processes, keys, found = [], [], {}
    try:
        for number in net.hosts:
            words = ["ip", "netns", "exec", net.host(number), sys.executable, "-m", "benchmarks.relay"]
            relay = "" if number == RELAY else net.address(RELAY)
            home = party.home(str(number))
            words += ["--host", str(home), "--relay", relay, "--megabytes", str(options.megabytes)]
            words += ["--delay-ms", str(options.delay_ms)]
            processes.append(await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE))
            assert processes[-1].stdout is not None
            keys.append((await processes[-1].stdout.readline()).decode().strip())
        for name in options.way or WAYS:
            jobs = WAYS[name]
            for count in (1, options.models):  # the first makes the links, and is not counted
                began = time.perf_counter()
                todo = [
                    order(processes[who - 1], [keys[to - 1] for to in others], count)
                    for who, others in jobs.items()
                ]
                await asyncio.gather(*todo)
            took_s = time.perf_counter() - began
            sent_bytes = options.models * size_bytes * sum(map(len, jobs.values()))
            found[name] = round(sent_bytes / took_s / link_bytes_per_s, 3)
    finally:
        for process in processes:
            process.kill()
            await process.wait()
    return found


def verdict(shares: dict[str, float]) -> Iterator[Check]:
    for way, share in shares.items():
        yield f"{way}: at least {LEAST_SHARE:g} of the link", f"{share:g}", share >= LEAST_SHARE


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabits", type=float, default=30.0)
    parser.add_argument("--megabytes", type=float, default=5.0)
    parser.add_argument("--models", type=int, default=3, help="how many each sends to each")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--way", action="append", choices=list(WAYS))
    parser.add_argument("--host", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--relay", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        size_bytes = int(options.megabytes * 1e6)
        asyncio.run(host(options.host, size_bytes, options.relay, options.delay_ms / 1000))
        return
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as directory, star(HOSTS, reachable=1) as net:
        net.shape(RELAY, options.megabits)
        shares = asyncio.run(measure(net, Party(Path(directory)), options))
    about = {"megabits": options.megabits, "megabytes": options.megabytes, "delay_ms": options.delay_ms}
    print(json.dumps({**about, "share": shares}), flush=True)
    sys.exit(0 if all_hold(verdict(shares), sys.stderr) else 1)


if __name__ == "__main__":
    main()
