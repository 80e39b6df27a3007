"""Tests of files of tensors and checkpoints: exact round trips, and a specific error for each kind of damage."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn, optim
from vkjit.backends import cpu
from vkjit.errors import ArgumentError, DTypeError
from vkjit.io import format  # noqa: A004
from vkjit.io.format import read
from vkjit.io.tensors import upload


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


def samples() -> dict[str, vk.Tensor]:
    names = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
    tensors = {name: vk.tensor(np.arange(7) % 3, dtype=name) for name in names}
    tensors["bool"] = vk.tensor([True, False, True])
    tensors["empty"] = vk.zeros(0, 3)
    tensors["scalar"] = vk.tensor(1.5)
    tensors["transposed"] = vk.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3)).mT
    tensors["nan"] = vk.tensor([float("nan"), float("-inf"), -0.0], dtype="bf16")
    tensors["größe.weight"] = vk.ones(1)
    return tensors


def test_every_type_and_shape_comes_back(tmp_path: Path) -> None:
    file, tensors = tmp_path / "deep" / "all.safetensors", samples()
    vk.io.save(tensors, file, {"note": "made for a test"})
    found = vk.io.load(file)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].numpy().tobytes() == tensor.numpy().tobytes()
    assert vk.io.metadata(file) == {"note": "made for a test"}
    assert [path.name for path in file.parent.iterdir()] == ["all.safetensors"]


def test_the_package_safetensors_reads_what_is_written(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    file, tensors = tmp_path / "all.safetensors", samples()
    vk.io.save(tensors, file, {"a": "b"})
    with library.safe_open(file, framework="numpy") as opened:
        assert opened.metadata() == {"a": "b"}
        assert set(opened.keys()) == set(tensors)
        for name in set(tensors) - {"bf16", "nan"}:  # both are bf16, which NumPy lacks
            np.testing.assert_array_equal(opened.get_tensor(name), tensors[name].numpy())


def test_what_the_package_safetensors_writes_is_read(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([1, 2], np.int64), "b": np.array(True)}
    library.save_file(arrays, tmp_path / "x.safetensors", metadata={"k": "v"})
    found = vk.io.load(tmp_path / "x.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
    assert vk.io.metadata(tmp_path / "x.safetensors") == {"k": "v"}


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has 0 bytes, fewer than the 8"),
        (b"abc", "it has 3 bytes"),
        ((10**12).to_bytes(8, "little") + b"{}", "its header would have 1000000000000 bytes"),
        (file_of(b"{x}"), "its header is no JSON"),
        (file_of(b"\xff\xfe"), "its header is no JSON"),
        (file_of(b"[" * 100_000), "its header is no JSON"),
        (file_of(b'{"x":1,"x":2}'), "it has 'x' more than once"),
        (
            file_of(json.dumps({"x": entry()}).replace('"shape"', '"dtype":"I32","shape"').encode(), b"1234"),
            "has 'dtype' more",
        ),
        (file_of([1]), "no JSON object"),
        (file_of({"__metadata__": {"a": 1}}), "metadata doesn't map strings to strings"),
        (file_of({"x": {"dtype": "F32"}}), "x lacks dtype, shape or data_offsets"),
        (file_of({"x": entry(shape=[-1])}, b"1234"), r"the shape of x is \[-1\]"),
        (file_of({"x": entry(shape=[True])}, b"1234"), "the shape of x is"),
        (file_of({"x": entry(shape=[2**63, 0], offsets=[0, 0])}), "the shape of x is"),
        (file_of({"x": entry(shape=[2**40, 0, 2**40], offsets=[0, 0])}), "the shape of x is"),
        (file_of({"x": entry(offsets=[0])}, b"1234"), "data_offsets of x"),
        (file_of({"x": entry(shape=[2])}, b"1234"), r"x of shape \[2\] needs 8 bytes"),
        (file_of({"x": entry()}, b"123"), "its tensors take 4 bytes, the file has 3"),
        (file_of({"x": entry()}, b"12345"), "cut off or padded"),
        (file_of({"x": entry(), "y": entry()}, b"1234"), "y begins at byte 0 of the data, expected 4"),
        (file_of({"x": entry(offsets=(4, 8))}, b"12345678"), "x begins at byte 4"),
    ],
)
def test_damaged_files_are_refused_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        vk.io.load(file)


def test_a_type_without_a_counterpart_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(file_of({"x": entry("F8_E4M3", [4])}, b"1234"))
    with pytest.raises(DTypeError, match="x holds F8_E4M3"):
        vk.io.load(tmp_path / "x")
    (tmp_path / "y").write_bytes(file_of({"y": entry(["F32"])}, b"1234"))
    with pytest.raises(DTypeError, match="y holds"):
        vk.io.load(tmp_path / "y")


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="'n' is a int, expected a tensor"):
        vk.io.save({"n": 3}, tmp_path / "x")  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="can't be the name of a tensor"):
        vk.io.save({"__metadata__": vk.ones(1)}, tmp_path / "x")
    with pytest.raises(ArgumentError, match="metadata maps strings"):
        vk.io.save({}, tmp_path / "x", {"n": 1})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="can't be the name of a tensor"):
        vk.io.save({"\ud800": vk.ones(1)}, tmp_path / "x")
    with pytest.raises(ArgumentError, match="a mapping of names to tensors, and then the path"):
        vk.io.save(tmp_path / "x", {"a": vk.ones(1)})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="is a folder"):
        vk.io.save({"a": vk.ones(1)}, tmp_path)
    with pytest.raises(ArgumentError, match="can't be read"):
        vk.io.load(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_only_ordinary_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArgumentError, match="no ordinary file"):
        vk.io.save({"a": vk.ones(1)}, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    vk.io.save({"a": vk.ones(1)}, tmp_path / "latest")
    (tmp_path / "run").chmod(0o600)
    vk.io.save({"a": vk.zeros(1)}, tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink() and vk.io.load(tmp_path / "run")["a"].tolist() == [0.0]
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "umask") or os.name == "nt", reason="permissions of POSIX")
def test_a_new_file_gets_the_permissions_that_the_umask_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        # the umask belongs to the whole process: files that other threads make mustn't see another one
        monkeypatch.delattr(os, "umask")
        vk.io.save({"a": vk.ones(1)}, tmp_path / "new")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes links of other users")
def test_links_of_others_in_shared_folders_are_refused(tmp_path: Path) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    shared.chmod(0o1777)
    victim.write_bytes(b"precious")
    (shared / "model").symlink_to(victim)
    vk.io.save({"a": vk.ones(1)}, shared / "model")  # one's own link
    victim.write_bytes(b"precious")
    os.lchown(shared / "model", 12345, 12345)
    (tmp_path / "latest").symlink_to(shared / "model")
    for path in (shared / "model", tmp_path / "latest"):
        with pytest.raises(ArgumentError, match=r"model is a symbolic link of another user \(number 12345\)"):
            vk.io.save({"a": vk.ones(1)}, path)
    assert victim.read_bytes() == b"precious"
    shared.chmod(0o755)
    vk.io.save({"a": vk.ones(1)}, shared / "model")


def test_the_system_may_read_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class InParts(FileIO):  # as Linux, with 2 GiB - 4 KiB
        def readinto(self, buffer: Any) -> Any:
            return super().readinto(memoryview(buffer)[:7])

    values = np.arange(100, dtype=np.float32)
    vk.io.save({"a": vk.tensor(values)}, tmp_path / "file")
    monkeypatch.setattr(format, "FileIO", InParts)
    np.testing.assert_array_equal(vk.io.load(tmp_path / "file")["a"].numpy(), values)


def test_names_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    vk.io.save({"a": vk.ones(1)}, tmp_path / ("n" * 250))
    assert vk.io.load(tmp_path / ("n" * 250))["a"].tolist() == [1.0]


# -- checkpoints


_KILLED = """
import os, signal, sys, time
import numpy as np
from vkjit import dtypes
from vkjit.io.format import write

def fsync(_):
    print("writing", flush=True)
    {at}

os.fsync = fsync
write(sys.argv[1], [("x", dtypes.f32, np.zeros(4, np.float32))], {{}})
"""


def start_writing(path: Path, at: str) -> subprocess.Popen[str]:
    """Start a process that writes a file, and runs `at` in its middle."""
    process = subprocess.Popen([sys.executable, "-c", _KILLED.format(at=at), path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def grow_old(folder: Path) -> None:
    """Set the times of a folder's files to an hour ago: new temporary files may not be locked yet."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3600,) * 2, follow_symlinks=False)


@pytest.mark.skipif(os.name != "posix", reason="the system has no file locks")
def test_a_save_deletes_what_killed_saves_left(tmp_path: Path) -> None:
    for name in ("model.safetensors", "model.safetensors", "größe " + "w" * 200):
        with start_writing(tmp_path / name, "os.kill(os.getpid(), signal.SIGKILL)") as process:
            assert process.wait() == -signal.SIGKILL
        grow_old(tmp_path)
    assert len(names_in(tmp_path)) == 1  # each has deleted the one before
    (tmp_path / "folder").mkdir()
    with start_writing(tmp_path / "folder" / "model.safetensors", "os.kill(os.getpid(), signal.SIGKILL)") as process:
        process.wait()
    vk.io.save({"x": vk.ones(2)}, tmp_path / "other.safetensors")
    assert names_in(tmp_path) == {"other.safetensors", "folder"} and len(names_in(tmp_path / "folder")) == 1


@pytest.mark.skipif(os.name != "posix", reason="the system has no file locks")
def test_a_save_deletes_nothing_else(tmp_path: Path) -> None:
    suffix = ".0123456789abcdef.vkjit-tmp"
    others = {
        ".model.0123456789abcdef",
        ".model.0123456789abcdef.tmp",
        ".model.0123456789abcdeg.vkjit-tmp",
        f"model{suffix}",
        f".model{suffix}.old",
        f".{suffix}",
        "vkjit-abcdefgh.tmp",
    }
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "linked").write_bytes(b"mine")
    (tmp_path / f".link{suffix}").symlink_to(tmp_path / "linked")
    (tmp_path / f".folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f".pipe{suffix}")
    kept = names_in(tmp_path)
    with start_writing(tmp_path / "theirs.safetensors", "time.sleep(60)") as process:
        theirs = names_in(tmp_path) - kept
        grow_old(tmp_path)
        vk.io.save({"x": vk.ones(2)}, tmp_path / "mine.safetensors")
        assert names_in(tmp_path) == kept | theirs | {"mine.safetensors"} and len(theirs) == 1
        process.kill()
    assert (tmp_path / "linked").read_bytes() == b"mine"


def test_threads_save_to_one_folder(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def save(number: int) -> None:
        try:
            for _ in range(20):
                vk.io.save({"x": x}, tmp_path / f"{number % 3}.safetensors")
        except BaseException as error:  # noqa: BLE001  # any error is reported
            failed.append(error)

    x = vk.ones(1000)
    threads = [threading.Thread(target=save, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and names_in(tmp_path) == {f"{n}.safetensors" for n in range(3)}
    assert all(vk.io.load(path)["x"].sum().item() == 1000 for path in tmp_path.iterdir())


def test_trees_of_values_come_back(tmp_path: Path) -> None:
    tree = {
        "numbers": [1, 2.5, -math.inf, True, None, "text"],
        "pair": (0.9, 0.999),
        "by number": {0: {"step": 3}, 7: {}},
        "$tensor": "a key that looks like the encoding",
        "x.y": vk.tensor([1, 2]),
        "x": {"y": vk.tensor([3.0])},
    }
    vk.io.save_checkpoint(tmp_path / "c", tree=tree, nothing=None)
    found = vk.io.load_checkpoint(tmp_path / "c")
    assert found["nothing"] is None
    same = found["tree"]
    assert list(same) == list(tree)
    assert same["x.y"].tolist() == [1, 2] and same["x"]["y"].tolist() == [3.0]
    for key in ("numbers", "pair", "by number", "$tensor"):
        assert same[key] == tree[key]


def make() -> tuple[nn.Module, optim.Adam, optim.lr_scheduler.StepLR]:
    vk.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    return model, optimizer, optim.lr_scheduler.StepLR(optimizer, 2)


def train(model: nn.Module, optimizer: optim.Adam, schedule: optim.lr_scheduler.StepLR, steps: range) -> None:
    for step in steps:
        x = vk.tensor(np.random.default_rng(step).standard_normal((5, 3)).astype(np.float32))
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        schedule.step()


def test_a_resumed_training_gives_the_same_bits(tmp_path: Path) -> None:
    unbroken, broken = make(), make()
    train(*unbroken, range(6))
    train(*broken, range(3))
    names = ("model", "optimizer", "schedule")
    kept: tuple[Any, ...] = broken
    parts = {name: part.state_dict() for name, part in zip(names, kept, strict=True)}
    vk.io.save_checkpoint(tmp_path / "run", **parts, step=3)
    resumed = make()
    nn.init.zeros_(next(resumed[0].parameters()))
    found = vk.io.load_checkpoint(tmp_path / "run")
    made: tuple[Any, ...] = resumed
    for name, part in zip(names, made, strict=True):
        part.load_state_dict(found[name])
    train(*resumed, range(found["step"], 6))
    for name, value in unbroken[0].state_dict().items():
        np.testing.assert_array_equal(resumed[0].state_dict()[name].numpy(), value.numpy(), err_msg=name)


def without(key: str) -> Callable[[dict[str, str]], object]:
    return lambda notes: notes.pop(key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("format"), "no checkpoint: read it with vk.io.load"),
        (lambda notes: notes.update(version="9"), "version 9, expected 1"),
        (without("tree"), "the tree of its values can't be read"),
        (lambda notes: notes.update(tree="[1"), "the tree of its values can't be read"),
        (lambda notes: notes.update(tree="[1]"), "the tree of its values is a list"),
        (lambda notes: notes.update(tree='{"a":{"$tensor":"b"}}'), "lacks the tensor 'b'"),
        (lambda notes: notes.update(tree='{"a":' + "[" * 100_000), "the tree of its values can't be read"),
        (lambda notes: notes.update(tree='{"a":{"$tensor":[]}}'), "a value of its tree"),
        (lambda notes: notes.update(tree='{"a":{"$number":"x"}}'), "a value of its tree"),
        (lambda notes: notes.update(tree='{"a":{"$items":[[1]]}}'), "a value of its tree"),
        (lambda notes: notes.update(tree='{"a":{"$tuple":3}}'), "a value of its tree"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    vk.io.save_checkpoint(tmp_path / "c", a=vk.ones(1))
    notes = vk.io.metadata(tmp_path / "c")
    change(notes)
    vk.io.save(vk.io.load(tmp_path / "c"), tmp_path / "c", notes)
    with pytest.raises(ArgumentError, match=message):
        vk.io.load_checkpoint(tmp_path / "c")


def test_other_values_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"can't hold model\.list\.1, a ndarray"):
        vk.io.save_checkpoint(tmp_path / "c", model={"list": [1, np.ones(1)]})
    with pytest.raises(ArgumentError, match="its key 1.5 is no string"):
        vk.io.save_checkpoint(tmp_path / "c", model={1.5: 1})
    assert list(tmp_path.iterdir()) == []


# -- zero-copy loading


@pytest.mark.skipif(not cpu.available(), reason="llvmlite isn't installed: no device works on the host's memory")
def test_a_device_on_the_hosts_memory_gets_the_files_pages(tmp_path: Path) -> None:
    with vk.use_device("cpu"):
        values = np.arange(1000, dtype=np.float32).reshape(10, 100)
        path = tmp_path / "pages.safetensors"
        vk.io.save({"a": vk.tensor(values), "b": vk.tensor([1.0, 2.0])}, path)
        before = vk.default_device().memory_stats()["reserved"]
        found = vk.io.load(path, copy=False)
        assert vk.default_device().memory_stats()["reserved"] - before < values.nbytes
        np.testing.assert_array_equal(found["a"].numpy(), values)
        found["a"].add_(1.0)
        np.testing.assert_array_equal(found["a"].numpy(), values + 1)
        np.testing.assert_array_equal(vk.io.load(path)["a"].numpy(), values)  # the file is unchanged


@pytest.mark.parametrize("kind", ["interpreter", "cpu"])
def test_later_changes_of_a_file_change_no_tensor(tmp_path: Path, kind: str) -> None:
    if kind == "cpu" and not cpu.available():
        pytest.skip("llvmlite isn't installed: no device works on the host's memory")
    path = tmp_path / "model.safetensors"
    with vk.use_device(kind):
        model = nn.Linear(64, 64)
        expected = model.weight.tolist()
        vk.io.save_model(path, model)
        loaded, parts = vk.io.load_model(path), vk.io.load(path)
        with path.open("r+b") as file:
            file.seek(path.stat().st_size - 4 * 64 * 64)
            file.write(bytes(4 * 64))  # in place, as other programs do
            file.truncate(4096)
        assert loaded.weight.tolist() == expected and parts["weight"].tolist() == expected


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("change", ["shortened", "replaced", "written", "gone"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, copy: bool, change: str) -> None:
    path = tmp_path / "a.safetensors"
    vk.io.save({"a": vk.ones(1000)}, path)
    contents = read(path)
    if change == "shortened":
        os.truncate(path, 1000)
    elif change == "replaced":
        vk.io.save({"a": vk.zeros(1000)}, path)
    elif change == "written":
        path.write_bytes(path.read_bytes()[:-4] + b"1234")
        os.utime(path, (0, 0))
    else:
        path.unlink()
    with pytest.raises(ArgumentError, match="changed while it was read|No such file"):
        upload(contents, copy=copy)


def test_what_is_no_ordinary_file_is_refused(tmp_path: Path) -> None:
    places: list[Any] = [tmp_path, "nul\0l", tmp_path / "none"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        places.append(tmp_path / "pipe")
    for place in places:
        with pytest.raises(ArgumentError, match="can't be read as a safetensors file"):
            vk.io.load(place)


def test_values_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentError, match="nested so deeply"):
        vk.io.save_checkpoint(tmp_path / "deep", value=deep)
    with pytest.raises(ArgumentError, match="digits"):
        vk.io.save_checkpoint(tmp_path / "long", value=10**5000)
    with pytest.raises(ArgumentError, match="Unicode"):
        vk.io.save({"a": vk.ones(1)}, tmp_path / "odd", {"note": "\udcff"})


def test_a_header_with_many_names_is_refused_at_once(tmp_path: Path) -> None:
    names = "".join(f'"{i}":0,' for i in range(100_000))
    header = ("{" + names + '"99999":0}').encode()
    path = tmp_path / "names"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    start = time.process_time()
    with pytest.raises(ArgumentError, match="'99999' more than once"):
        vk.io.load(path)
    assert time.process_time() - start < 5  # quadratic search: minutes


@pytest.mark.parametrize("kind", ["interpreter", "cpu"])
def test_a_blueprint_takes_a_files_tensors_over(tmp_path: Path, kind: str) -> None:
    if kind == "cpu" and not cpu.available():
        pytest.skip("llvmlite isn't installed: no device works on the host's memory")
    with vk.use_device(kind):
        source = vk.nn.Sequential(vk.nn.Linear(4, 3), vk.nn.BatchNorm1d(3))
        path = tmp_path / "model.safetensors"
        vk.io.save(source.state_dict(), path)
        model = vk.nn.Sequential(vk.nn.Linear(4, 3, device="meta"), vk.nn.BatchNorm1d(3, device="meta"))
        state = vk.io.load(path)
        model.materialize(state=state)
        assert model[0].weight._array.buffer is state["0.weight"]._array.buffer
        x = vk.ones(2, 4)
        assert model.eval()(x).tolist() == source.eval()(x).tolist()
        assert model[0].weight.requires_grad and not model[1].running_mean.requires_grad
