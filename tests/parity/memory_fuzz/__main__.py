"""`python -m tests.parity.memory_fuzz`: fuzz operations against PyTorch with arbitrary layouts and repeated calls.

Tests results, gradients, `out=` and in-place variants of every operation of ops.txt on PyTorch's samples, with varying
layouts, offsets, shared memory, NaN and infinities, extents of 0 and 1, and types. Runs for --seconds on --device, from
--seed on; --op selects operations. Operations run in separate processes, so that a crash is a failure, too. Failures of
the same operation and kind are printed once, as are clear errors where PyTorch has a result (which don't count). The
exit code is 1 if there are failures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

SECONDS = 60
"""Time limit of one check."""
MAX_ELEMENTS = 400
"""Maximum number of elements of a sample."""
_OPERATIONS = 40
"""Operations per process."""


def _types(op: Any) -> list[Any]:
    import torch

    kinds: list[Any] = [
        torch.float32,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
    ]
    kinds += [torch.uint8, torch.int8, torch.bool]
    return [k for k in kinds if op.supports_dtype(k, "cpu")]


def _samples(op: Any, dtype: Any, rng: random.Random) -> list[Any]:
    import torch

    wants = dtype.is_floating_point and op.supports_autograd
    torch.manual_seed(rng.randint(0, 5))
    found = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=wants):
        tensors = [t for t in (sample.input, *sample.args, *sample.kwargs.values()) if isinstance(t, torch.Tensor)]
        if sum(t.numel() for t in tensors) <= MAX_ELEMENTS:
            found.append(sample)
    return rng.sample(found, min(len(found), 2))


def _plain(sample: Any) -> Any:
    """Return the sample without arguments that control where PyTorch places a result."""
    import torch

    for name in ("device", "layout", "pin_memory", "memory_format"):
        value = sample.kwargs.get(name)
        if isinstance(value, (torch.device, bool, type(None))) or value in (
            torch.strided, torch.contiguous_format, torch.preserve_format,
        ):  # fmt: skip
            sample.kwargs.pop(name, None)
    return sample


def _tasks(op: Any, sample: Any, rng: random.Random, device: Any) -> list[tuple[str, Any]]:
    """Return the checks of one sample, by name."""
    from tests.parity.memory_fuzz import checks, places

    extents = sorted({e for t in [sample.input] if hasattr(t, "shape") for e in t.shape})
    cut = {rng.choice(extents): rng.choice([0, 1])} if extents else {}
    wants = bool(op.supports_autograd)

    def setting(own: random.Random, **more: Any) -> Any:
        return places.make_setting(sample, own, **more)

    def results(own: random.Random) -> None:
        checks.sequence(op, [setting(own), setting(own), setting(own, cut=cut)], own, device, gradients=False)

    def gradients(own: random.Random) -> None:
        checks.sequence(op, [setting(own), setting(own)], own, device, gradients=wants)

    def special(own: random.Random) -> None:
        checks.sequence(op, [setting(own, special=True), setting(own)], own, device, gradients=False)

    def types(own: random.Random) -> None:
        settings = [setting(own, convert=True), setting(own, convert=True)]
        checks.sequence(op, settings, own, device, gradients=False)

    return [
        ("results", results),
        ("gradients", gradients),
        ("special", special),
        ("types", types),
        ("aliases", lambda own: checks.aliases(op, setting(own, layouts=("plain",)), device)),
        ("out", lambda own: checks.out(op, setting(own), own, device)),
        ("out", lambda own: checks.out(op, setting(own, cut=cut), own, device)),
        ("in place", lambda own: checks.in_place(op, setting(own), own, device)),
        ("in place", lambda own: checks.in_place(op, setting(own, convert=True), own, device)),
    ]


def _alarm(_number: int, _frame: Any) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")


def examine(name: str, seed: int, opened: Any, only: str | None) -> Counter[str]:
    """Run all checks of one operation once; print failures as lines of JSON."""
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.parity.memory_fuzz import checks
    from tests.parity.ops.opinfo_bridge import Unsupported

    rng, count = random.Random(f"{seed}/{name}"), Counter[str]()
    for op in (o for o in op_db if o.name == name):
        kinds = _types(op)
        for dtype in rng.sample(kinds, min(len(kinds), 1)):
            for number, sample in enumerate(map(_plain, _samples(op, dtype, rng))):
                for place, (label, task) in enumerate(_tasks(op, sample, rng, opened)):
                    if only not in (None, label) or (name, label) in checks.KNOWN:
                        continue
                    count["checks"] += 1
                    signal.alarm(SECONDS)
                    try:
                        task(random.Random(f"{seed}/{name}/{op.variant_test_name}/{dtype}/{number}/{place}"))
                    except (Unsupported, checks.Inapplicable):
                        count["inapplicable"] += 1
                    except checks.Refusal as error:
                        _say(name, label, str(dtype), "refused", str(error), seed)
                    except (checks.Finding, TimeoutError) as error:
                        _say(name, label, str(dtype), "finding", str(error), seed)
                    finally:
                        signal.alarm(0)
    return count


def examine_large(name: str, seed: int, opened: Any) -> Counter[str]:
    """Check one operation on long samples, half of the time with GPU kernels; prints like `examine`."""
    from tests.parity.memory_fuzz import checks, large, places
    from vkjit.stdlib.registry import forcing_class

    rng = random.Random(f"large {seed}/{name}")
    for op, sample in large.drawn(name, rng):
        settings = [places.make_setting(sample, rng, special=rng.random() < 0.3) for _ in range(2)]
        forced = forcing_class("gpu") if rng.random() < 0.5 else contextlib.nullcontext()
        signal.alarm(SECONDS)
        try:
            with forced:
                checks.sequence(op, settings, rng, opened, gradients=False)
        except checks.Refusal as error:
            _say(name, "large", "torch.-", "refused", str(error), seed)
        except (checks.Finding, TimeoutError) as error:
            _say(name, "large", "torch.-", "finding", str(error), seed)
        finally:
            signal.alarm(0)
    return Counter(checks=2)


def _say(name: str, label: str, dtype: str, what: str, text: str, seed: int) -> None:
    row = {
        "name": name,
        "check": label,
        "dtype": dtype[6:],
        "what": what,
        "text": " ".join(text.split())[:600],
        "seed": seed,
    }
    print(json.dumps(row), flush=True)


def child(given: argparse.Namespace) -> int:
    """Run the operations named on the command line."""
    import torch

    import vkjit as vk
    from tests.parity.ops.opinfo_compare import SHAPE_ONLY

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _alarm)
    opened, total = vk.device(given.device), Counter[str]()
    with vk.use_device(opened):
        for name in given.op:
            print(json.dumps({"begun": name}), flush=True)
            if given.large:
                total += examine_large(name, given.seed, opened)
            elif name not in SHAPE_ONLY:
                total += examine(name, given.seed, opened, given.check)
    print(json.dumps({"count": dict(total)}), flush=True)
    return 0


def _kind(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the key that identifies equal rows."""
    text = row["text"].split("]: ", 1)[-1]
    return row["name"], row["what"], re.sub(r"[-\d.e+]+|nan|inf", "#", text)[:60]


def main() -> int:
    """Run the command."""
    from tests.parity.memory_fuzz.large import CASES
    from tests.parity.ops.opinfo import names

    parser = argparse.ArgumentParser(prog="python -m tests.parity.memory_fuzz", description=__doc__)
    parser.add_argument("--op", action="append", help="only this operation (several times for several)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120.0, help="no new operation after that time")
    parser.add_argument("--check", help="only this check: results, gradients, special, types, aliases, out, in place")
    parser.add_argument("--large", action="store_true", help="operations that have kernels for long tensors, on such")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given)
    begun, seed = time.monotonic(), given.seed
    known, total = Counter[tuple[str, ...]](), Counter[str]()
    while time.monotonic() - begun < given.seconds:
        chosen = list(given.op or (CASES if given.large else names()))
        random.Random(seed).shuffle(chosen)
        while chosen and time.monotonic() - begun < given.seconds:
            part, chosen = chosen[:_OPERATIONS], chosen[_OPERATIONS:]
            chosen = _part(part, seed, given, known, total) + chosen
        seed += 1
    findings = sum(1 for key in known if key[1] == "finding")
    print(
        f"{total['checks']} checks on {given.device}, seeds {given.seed} to {seed - 1}: {findings} findings, "
        f"{len(known) - findings} clear errors where PyTorch has a result"
    )
    return int(bool(findings))


def _part(
    part: list[str], seed: int, given: argparse.Namespace, known: Counter[tuple[str, ...]], total: Counter[str]
) -> list[str]:
    """Run operations in a process; return those that are left if it crashes."""
    command = [
        sys.executable,
        "-m",
        "tests.parity.memory_fuzz",
        "--child",
        "--device",
        given.device,
        "--seed",
        str(seed),
    ]
    command += [word for name in part for word in ("--op", name)] + (["--check", given.check] if given.check else [])
    command += ["--large"] if given.large else []
    last = part[0]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line) if line.startswith("{") else {}
            last = row.get("begun", last)
            total += Counter(row.get("count", {}))
            if "what" in row:
                _note(row, known)
    if process.returncode == 0:
        return []
    _note(
        {
            "name": last,
            "check": "",
            "dtype": "",
            "what": "finding",
            "text": f"died: {process.returncode}",
            "seed": seed,
        },
        known,
    )
    return part[part.index(last) + 1 :]


def _note(row: dict[str, Any], known: Counter[tuple[str, ...]]) -> None:
    key = _kind(row)
    known[key] += 1
    if known[key] == 1:
        print(
            f"{row['what']}: {row['name']} {row['dtype']} ({row['check']}, seed {row['seed']}): {row['text']}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
