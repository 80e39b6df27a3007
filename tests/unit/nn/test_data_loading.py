"""Tests of datasets, files, transforms and data loaders: contents, order, seeds, threads, resuming."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import data
from vkjit.autotune.storage import read_exported
from vkjit.data import transforms
from vkjit.errors import ArgumentError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


def numbers(count: int = 10) -> data.ArrayDataset:
    return data.ArrayDataset(np.arange(count, dtype=np.float32)[:, None], np.arange(count))


def seen(loader: data.DataLoader) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


class Noisy(data.Dataset):
    """Dataset that draws a random number per example and delays some examples."""

    def __len__(self) -> int:
        return 12

    def item(self, index: int, generator: np.random.Generator) -> Any:
        time.sleep(0.002 * (index % 3))
        return np.float32(generator.random()), index


# -- loaders


def test_batches_are_tensors_in_order() -> None:
    batches = list(data.DataLoader(numbers(), 4))
    assert [x.shape for x, _ in batches] == [(4, 1), (4, 1), (2, 1)]
    assert batches[0][0].dtype is vk.f32 and batches[0][1].dtype is vk.i64
    assert batches[2][1].tolist() == [8, 9]
    assert len(data.DataLoader(numbers(), 4)) == 3
    assert [len(y) for y in seen(data.DataLoader(numbers(), 4, drop_last=True))] == [4, 4]


def test_orders_follow_from_seed_and_epoch() -> None:
    each = data.DataLoader(numbers(), 10, shuffle=True, seed=3)
    first, second = seen(each), seen(each)
    assert sorted(first[0]) == sorted(second[0]) == list(range(10)) and first != second
    assert seen(data.DataLoader(numbers(), 10, shuffle="epoch", seed=3)) == first
    assert seen(data.DataLoader(numbers(), 10, shuffle=True, seed=4)) != first
    once = data.DataLoader(numbers(), 10, shuffle="once", seed=3)
    assert seen(once) == seen(once) == first


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_threads_change_nothing(workers: int) -> None:
    def run(threads: int) -> list[Any]:
        loader = data.DataLoader(Noisy(), 5, shuffle=True, seed=1, workers=threads)
        return [(x.tolist(), y.tolist()) for _ in range(2) for x, y in loader]

    found = run(workers)
    assert found == run(0)
    assert len({v for x, _ in found for v in x}) == 24  # each epoch draws new numbers


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_an_iteration_goes_on_where_it_was_broken_off(stop: int) -> None:
    unbroken = data.DataLoader(Noisy(), 3, shuffle=True, seed=2)
    expected = [(x.tolist(), y.tolist()) for _ in range(3) for x, y in unbroken]
    first = data.DataLoader(Noisy(), 3, shuffle=True, seed=2, workers=2)
    found = []
    for number, (x, y) in enumerate(first):
        if number == stop:
            break
        found.append((x.tolist(), y.tolist()))
        place = first.state_dict()
    if stop == 0:
        place = data.DataLoader(Noisy(), 3, shuffle=True, seed=2).state_dict()
    second = data.DataLoader(Noisy(), 3, shuffle=True, seed=99)
    second.load_state_dict(place)
    while len(found) < len(expected):
        found += [(x.tolist(), y.tolist()) for x, y in second]
    assert found == expected
    with pytest.raises(ArgumentError, match="batch_size=3, this loader has 4"):
        data.DataLoader(Noisy(), 4).load_state_dict(place)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iteration_that_was_broken_off_is_an_epoch(workers: int) -> None:
    loader = data.DataLoader(numbers(), 4, shuffle=True, seed=3, workers=workers)
    orders = [loader.order(epoch).tolist() for epoch in range(4)]
    assert next(iter(loader))[0].shape[0] == 4  # taking one batch doesn't shorten the next epoch
    assert [y for batch in seen(loader) for y in batch] == orders[1]
    for number, _ in enumerate(loader):
        if number == len(loader) - 1:
            break
    assert [y for batch in seen(loader) for y in batch] == orders[3] and (loader.epoch, loader.position) == (4, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_does_not_wait_for_the_next_one(workers: int) -> None:
    seen_first = threading.Event()

    class Waiting(Noisy):
        def item(self, index: int, generator: np.random.Generator) -> Any:
            if index >= 4 and not seen_first.wait(20):
                raise TimeoutError("the second batch was asked for before the first one was handed out")
            return index

    handed_out = []
    for batch in data.DataLoader(Waiting(), 4, workers=workers):
        seen_first.set()
        handed_out += batch.tolist()
    assert handed_out == list(range(12))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_made_before_an_error_is_handed_out(workers: int) -> None:
    class Broken(data.Dataset):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError("no example 5")
            return index

    loader = data.DataLoader(Broken(), 2, workers=workers)
    found: list[Any] = []
    with pytest.raises(ValueError, match="no example 5"):
        found.extend(batch.tolist() for batch in loader)
    assert found == [[0, 1], [2, 3]] and loader.position == 2


@pytest.mark.parametrize("examples", [[(1, 2), (3,)], [(3,), (1, 2)], [{"a": 1}, {"a": 1, "b": 2}], [(1, 2), 3]])
def test_examples_of_different_structure_are_refused(examples: list[Any]) -> None:
    with pytest.raises(ArgumentError, match="different structure can't be stacked"):
        next(iter(data.DataLoader(examples, 2)))


def test_a_place_without_its_numbers_is_refused() -> None:
    with pytest.raises(ArgumentError, match="lacks position, seed"):
        data.DataLoader([1, 2]).load_state_dict({"epoch": 1})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_does_not_wait_for_workers_it_has_not() -> None:
    loader = iter(data.DataLoader(Noisy(), 2, workers=2, to_device=False))
    next(loader)
    child = os.fork()
    if not child:
        try:
            next(loader)
        except vk.VkjitError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(loader)) > 0


def test_errors_of_threads_arrive_and_threads_end() -> None:
    class Broken(Noisy):
        def item(self, index: int, generator: np.random.Generator) -> Any:
            if index == 7:
                raise ValueError("no example 7")
            return super().item(index, generator)

    loader = iter(data.DataLoader(Broken(), 2, workers=2))
    with pytest.raises(ValueError, match="no example 7"):
        for _ in loader:
            pass
    assert not [t for t in threading.enumerate() if t.name.startswith("vkjit-data")]


def test_an_epoch_costs_what_the_slower_of_work_and_decoding_costs() -> None:
    class Slow(data.Dataset):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.01)
            return np.float32(index)

    def timed(workers: int) -> float:
        start = time.perf_counter()
        for _ in data.DataLoader(Slow(), 2, workers=workers, to_device=False):
            time.sleep(0.02)
        return time.perf_counter() - start

    alone, ahead = timed(0), timed(2)  # 12 batches of 20 ms decoding and 20 ms work; two threads halve the decoding
    assert ahead < 0.8 * alone


def test_structures_and_other_collations() -> None:
    rows = [{"x": np.ones(2), "y": 1}, {"x": np.zeros(2), "y": 0}]
    batch = next(iter(data.DataLoader(rows, 2)))
    assert batch["x"].tolist() == [[1, 1], [0, 0]] and batch["x"].dtype is vk.f32 and batch["y"].tolist() == [1, 0]
    ragged = [np.ones(1), np.ones(2)]
    with pytest.raises(ArgumentError, match="different shapes can't be stacked"):
        list(data.DataLoader(ragged, 2))
    loader = data.DataLoader(ragged, 2, collate=lambda items: [len(i) for i in items], to_device=False)
    assert list(loader) == [[1, 2]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is"),
        ({"shuffle": "twice"}, "shuffle is"),
        ({"batch_size": True}, "batch_size is an int"),
        ({"workers": -1}, "workers is an int of at least 0"),
        ({"workers": 1.5}, "workers is an int of at least 0"),
        ({"prefetch": 0}, "prefetch one of at least 1, found 0 and 0"),
        ({"seed": -1}, "seed is an int of at least 0, found -1"),
        ({"seed": "x"}, "seed is an int of at least 0, found 'x'"),
        ({"collate": 3}, "collate is a function"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        data.DataLoader(numbers(), **options)


# -- datasets


def test_splits_are_parts_in_proportion() -> None:
    parts = data.split(numbers(11), (0.5, 0.3, 0.2), seed=1)
    assert [len(p) for p in parts] == [6, 3, 2]
    assert sorted(int(p[i][1]) for p in parts for i in range(len(p))) == list(range(11))
    assert [int(y) for _, y in data.split(numbers(4), (1, 1), seed=None)[1]] == [2, 3]
    again = data.split(numbers(11), (0.5, 0.3, 0.2), seed=1)
    assert all((a.indices == b.indices).all() for a, b in zip(parts, again, strict=True))
    with pytest.raises(ArgumentError, match="ratios are"):
        data.split(numbers(), (0, 0))


def test_datasets_are_joined_as_a_list_too() -> None:
    combined = data.ConcatDataset([data.ArrayDataset(np.arange(2)), data.ArrayDataset(np.arange(3))])
    assert [int(x) for x in combined] == [0, 1, 0, 1, 2]


def test_datasets_are_joined_chosen_and_transformed() -> None:
    combined = data.ConcatDataset(numbers(2), numbers(3))
    assert [int(y) for _, y in combined] == [0, 1, 0, 1, 2] and int(combined[-1][1]) == 2
    some = data.Subset(combined, [4, 0])
    made = data.Transformed(some, transforms.Each(lambda x: x + 1), transforms.OneHot(3))
    x, y = made[0]
    assert x.tolist() == [3] and y.tolist() == [0, 0, 1]
    with pytest.raises(IndexError, match="example 2 is out of range for 2"):
        made[2]
    with pytest.raises(ArgumentError, match="one first size"):
        data.ArrayDataset(np.ones(2), np.ones(3))
    with pytest.raises(ArgumentError, match="between 0 and 4"):
        data.Subset(combined, [5])


def test_a_dataset_is_described() -> None:
    labelled = data.ArrayDataset(np.zeros((3, 2), np.float32), np.array([0, 1, 0]), classes=["cat", "dog"])
    text = str(data.describe(labelled))
    assert "ArrayDataset: 3 examples, 48 bytes" in text and "0: (2,) float32, 0 to 0" in text
    assert "labels: cat 2, dog 1" in text
    assert data.describe(data.Subset(labelled, [1])).labels == {"dog": 1}


# -- files


def write_images(folder: Path) -> Any:
    rng = np.random.default_rng(0)
    colour, wide = rng.integers(0, 256, (4, 5, 3), np.uint8), rng.integers(0, 65536, (4, 5), np.uint16)
    for name in ("a", "b"):
        (folder / name).mkdir()
    (folder / "a" / "1.ppm").write_bytes(b"P6\n# made here\n5 4\n255\n" + colour.tobytes())
    (folder / "b" / "2.pgm").write_bytes(b"P5 5 4 65535\n" + wide.astype(">u2").tobytes())
    np.save(folder / "b" / "3.npy", colour.astype(np.float32) / np.float32(255))
    (folder / "b" / "notes.txt").write_text("no image")
    return colour, wide


def test_image_folders_are_read_in_all_modes_and_types(tmp_path: Path) -> None:
    colour, wide = write_images(tmp_path)
    folder = data.ImageFolder(tmp_path)
    assert folder.classes == ("a", "b") and [int(y) for _, y in folder] == [0, 1, 1]
    np.testing.assert_array_equal(folder[0][0], colour)
    np.testing.assert_array_equal(folder[2][0], colour)
    grey = data.ImageFolder(tmp_path, "grey", "u16")
    np.testing.assert_array_equal(grey[1][0], wide)
    assert grey[0][0].shape == (4, 5) and grey[0][0].dtype == np.uint16
    floats = data.ImageFolder(tmp_path, "RGB", "f32", transforms.ToFloat())
    np.testing.assert_allclose(floats[0][0], colour.transpose(2, 0, 1) / 255, rtol=1e-6)
    np.testing.assert_allclose(floats[1][0][1], wide / 65535, rtol=1e-6)
    x, y = next(iter(data.DataLoader(floats, 3, workers=2)))
    assert x.shape == (3, 3, 4, 5) and y.tolist() == [0, 1, 1]


def test_formats_of_pillow_are_read(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow isn't installed: it reads the other formats")
    colour, wide = write_images(tmp_path)
    image.fromarray(colour).save(tmp_path / "x.png")
    image.fromarray(wide).save(tmp_path / "y.png")
    np.testing.assert_array_equal(data.read_image(tmp_path / "x.png"), colour)
    np.testing.assert_array_equal(data.read_image(tmp_path / "y.png", "grey", "u16"), wide)


def test_whatever_readers_raise_for_broken_files_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "wide.npy", np.full((2, 2), 200))  # 64-bit integers: no white level is defined
    for name, message in (("empty.npy", "can't be read as an image"), ("wide.npy", "doesn't say what white is")):
        with pytest.raises(ArgumentError, match=message):
            data.read_image(tmp_path / name)


def test_images_of_hostile_sizes_are_told(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow isn't installed: it reads the other formats")
    image.new("L", (4, 4)).save(tmp_path / "x.bmp")
    content = bytearray((tmp_path / "x.bmp").read_bytes())
    content[18:26] = (100_000).to_bytes(4, "little") * 2  # width and height
    (tmp_path / "x.bmp").write_bytes(content)
    with pytest.raises(ArgumentError, match="can't be read as an image"):
        data.read_image(tmp_path / "x.bmp")


def test_what_is_no_image_is_told(tmp_path: Path) -> None:
    (tmp_path / "cut.ppm").write_bytes(b"P6 5 4")
    (tmp_path / "short.pgm").write_bytes(b"P5 5 4 255\n12")
    np.save(tmp_path / "line.npy", np.zeros(3))
    for name, message in (("cut.ppm", "header"), ("short.pgm", "can't be read"), ("line.npy", r"shape \(3,\)")):
        with pytest.raises(ArgumentError, match=message):
            data.read_image(tmp_path / name)
    with pytest.raises(ArgumentError, match="holds no images"):
        data.ImageFolder(tmp_path)
    with pytest.raises(ArgumentError, match="mode is"):
        data.ImageFolder(tmp_path, "blue")


def test_tables_are_read(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,kind,b\n1,dog,2\n3,cat,4.5\n")
    found = data.csv(table, "kind")
    assert found.arrays[0].tolist() == [[1, 2], [3, 4.5]] and found.arrays[1].tolist() == [1, 0]
    assert found.classes == ("cat", "dog")
    table.write_text("1;2\n3;4\n")
    assert data.csv(table, -1, delimiter=";", header=False).arrays[1].dtype == np.int64
    table.write_text("a,b\n1,2\n3\n")
    with pytest.raises(ArgumentError, match="line 3: 1 cells, expected 2"):
        data.csv(table)
    table.write_text("a,b\n1,x\n")
    with pytest.raises(ArgumentError, match="line 2: 'x' in column 2 is no number"):
        data.csv(table)
    with pytest.raises(ArgumentError, match="no column 'c', only a, b"):
        data.csv(table, "c")


def test_tables_of_spreadsheets_are_read(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(b"\xef\xbb\xbfy,a\r\n1,2\r\n")  # with a byte order mark
    assert data.csv(table, "y").arrays[1].tolist() == [1]
    table.write_text('kind,b\n"two\nlines",1\ncat,x\n')
    with pytest.raises(ArgumentError, match="line 4: 'x'"):
        data.csv(table, "kind")


@pytest.mark.parametrize(
    ("content", "label", "message"),
    [
        (b"a,y\n1,cat\n2,\n", "y", "line 3: the label in column 2 is missing"),
        (b"a,y\n1,0\n2,\n", "y", "line 3: the label in column 2 is missing"),
        (b"a,b\n1_000,2\n", None, "'1_000' in column 1 is no number"),
        (b"\xe4,b\n1,2\n", None, "can't be read as a table"),
    ],
)
def test_tables_with_mistakes_are_refused(tmp_path: Path, content: bytes, label: str | None, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        data.csv(tmp_path / "t.csv", label)


def test_labels_too_large_for_whole_numbers_are_floats(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,1e30\n2,1\n")
    labels = data.csv(tmp_path / "t.csv", "y").arrays[1]
    assert labels.dtype == np.float32 and labels.tolist() == [np.float32(1e30), 1.0]
    with pytest.raises(ArgumentError, match="can't be read as a table"):
        data.csv(tmp_path / "absent.csv")


@pytest.mark.parametrize(("dtype", "offset"), [("no type", 0), ("O", 0), ("u1", -1)])
def test_raw_numbers_need_a_type_and_a_place(tmp_path: Path, dtype: str, offset: int) -> None:
    (tmp_path / "x").write_bytes(b"12345678")
    with pytest.raises(ArgumentError, match="dtype"):
        data.raw(tmp_path / "x", dtype, (1,), offset=offset)


def test_raw_numbers_are_mapped(tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_bytes(b"head" + np.arange(12, dtype=np.uint16).tobytes())
    found = data.raw(file, np.uint16, (2, 3), offset=4)
    assert len(found) == 2 and found[1].tolist() == [[6, 7, 8], [9, 10, 11]]
    with pytest.raises(ArgumentError, match="28 bytes from 0 on, no multiple of the 12"):
        data.raw(file, np.uint16, (2, 3))


def test_sets_of_images_are_read(tmp_path: Path) -> None:
    images, labels = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28), np.array([3, 7], np.uint8)
    head = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in images.shape)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + (2).to_bytes(4, "big") + labels.tobytes())
    found = data.mnist(tmp_path)
    assert found.arrays[0].tolist() == images.tolist() and found.arrays[1].tolist() == [3, 7]
    head = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (0, 2**32 - 1, 2**32 - 1))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(head)
    with pytest.raises(ArgumentError, match="t10k-images-idx3-ubyte holds no examples"):
        data.mnist(tmp_path, train=False)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(ArgumentError, match="no t10k-images"):
        data.mnist(tmp_path, train=False)
    row = np.concatenate([[5], np.arange(3072) % 256]).astype(np.uint8)
    row.tofile(tmp_path / "test_batch.bin")
    x, y = data.cifar10(tmp_path, train=False)[0]
    assert y == 5 and x.shape == (32, 32, 3) and x[0, 1].tolist() == [1, 1, 1]
    (tmp_path / "test_batch.bin").write_bytes(b"12")
    with pytest.raises(ArgumentError, match="3073"):
        data.cifar10(tmp_path, train=False)
    digits = data.digits()
    assert len(digits) == 1797 and digits.arrays[0].shape == (1797, 8, 8) and digits.arrays[0].max() == 1


# -- transforms


def test_transforms_of_images() -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (6, 8, 3), np.uint8)
    planes = transforms.ToFloat()(image, rng)
    assert planes.shape == (3, 6, 8) and planes.dtype == np.float32
    np.testing.assert_allclose(planes[1], image[:, :, 1] / 255, rtol=1e-6)
    scaled = transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.25, 1.0))(planes, rng)
    np.testing.assert_allclose(scaled[1], (planes[1] - 0.5) / 0.25, rtol=1e-6)
    np.testing.assert_array_equal(transforms.CenterCrop((2, 4))(image, rng), image[2:4, 2:6])
    assert transforms.RandomCrop((6, 8), padding=2, channels_first=True)(planes, rng).shape == (3, 6, 8)
    np.testing.assert_array_equal(transforms.RandomFlip(1.0)(image, rng), image[:, ::-1])
    np.testing.assert_array_equal(transforms.RandomFlip(0.0)(image, rng), image)
    half = transforms.Resize((3, 4), "linear")(image.astype(np.float32), rng)
    np.testing.assert_allclose(half[0, 0], image[:2, :2].astype(np.float32).mean((0, 1)), rtol=1e-5)
    assert transforms.Resize((12, 8), "nearest")(image, rng)[1, 0].tolist() == image[0, 0].tolist()
    with pytest.raises(ArgumentError, match="resize or pad it first"):
        transforms.CenterCrop((7, 4))(image, rng)
    for make in (transforms.CenterCrop, transforms.RandomCrop, transforms.Resize):
        with pytest.raises(ArgumentError, match=r"takes a size \(H, W\) of ints of at least 1, found 4"):
            make(4)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match='"linear" or "nearest", found \'cubic\''):
        transforms.Resize((3, 4), "cubic")
    both = transforms.Compose(transforms.RandomCrop((4, 4)), transforms.ToFloat())
    one, other = (both(image, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("mean", "deviation"), [([0.5], [0.0]), ([0.5, 0.5], 1.0), (0.5, -1.0)])
def test_deviations_are_above_zero_and_one_per_mean(mean: Any, deviation: Any) -> None:
    with pytest.raises(ArgumentError, match="Normalize takes two numbers"):
        transforms.Normalize(mean, deviation)


@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 2, 3), (2, 2)])
def test_channels_that_are_normalised_come_first(shape: tuple[int, ...]) -> None:
    normalize = transforms.Normalize([0.5] * 3, [1.0] * 3)
    with pytest.raises(ArgumentError, match="Normalize has 3 channels"):
        normalize(np.ones(shape, np.float32), np.random.default_rng(0))


def test_labels_become_vectors() -> None:
    assert data.one_hot([[0, 2]], 3).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    with pytest.raises(ArgumentError, match="between 0 and 1, found 0 to 2"):
        data.one_hot([0, 2], 2)
    with pytest.raises(ArgumentError, match="labels are integers"):
        data.one_hot([0.5], 2)


def test_csv_labels_beyond_f64(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    numbers = [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 7]
    file.write_text("x,y\n" + "".join(f"1,{n}\n" for n in numbers))
    assert [int(label) for _, label in vk.data.csv(file, "y")] == numbers
    file.write_text(f"x,y\n1,{2**63}\n")
    with pytest.raises(vk.ArgumentError, match="don't fit i64"):
        vk.data.csv(file, "y")
    file.write_text("x,y\n1,1e30\n2,3\n")
    assert vk.data.csv(file, "y")[1][1].dtype == np.float32


def test_csv_labels_of_several_columns_are_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("a,b, a\n1,2,3\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match="has 2 columns 'a': give the index of the label's"):
        data.csv(path, label="a")
    assert data.csv(path, label=2)[0][1] == 3
    assert data.csv(path, label="b")[0][1] == 2


@pytest.mark.parametrize("header", [b"P6 -3 4 255\n", b"P5 0 4 255\n", b"P6 3 -4 255\n"])
def test_portable_maps_have_positive_sizes(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "image.ppm"
    path.write_bytes(header + b"\1" * 64)
    with pytest.raises(ArgumentError, match="its header asks for 0 x 4 pixels|its width, height and maximum are"):
        data.read_image(path)


@pytest.mark.parametrize(
    ("dtype", "shape", "offset"),
    [
        (None, (1,), 0),
        (None, None, 0),
        ("u1", None, 0),
        ("u1", 5, 0),
        ("u1", (1.5,), 0),
        ("u1", (1,), "x"),
        ("u1", (1,), None),
    ],
)
def test_raw_arrays_of_wrong_descriptions_are_refused(tmp_path: Path, dtype: Any, shape: Any, offset: Any) -> None:
    path = tmp_path / "raw"
    path.write_bytes(bytes(16))
    with pytest.raises(ArgumentError, match=r"dtype is a type|shape is a tuple|raw\(\) reads numbers"):
        data.raw(path, dtype, shape, offset=offset)


@pytest.mark.parametrize("path", [None, 5, b"name", ["a"]], ids=repr)
def test_what_is_no_path_is_refused(path: Any) -> None:
    reads: list[Any] = [data.csv, data.mnist, data.cifar10, lambda p: data.raw(p, "u1", (1,))]
    for read in reads:
        with pytest.raises(ArgumentError, match="expected the path of a file or folder, found"):
            read(path)


@pytest.mark.parametrize("index", [[0], (0,), "x", None, 1.5, np.ones(3)], ids=repr)
def test_examples_are_indexed_by_integers(index: Any) -> None:
    array = data.ArrayDataset(np.arange(6))
    for dataset in (array, data.Subset(array, [1, 2]), data.ConcatDataset(array, array), data.Transformed(array)):
        with pytest.raises(ArgumentError, match="the index of an example is an integer, found a"):
            dataset[index]


def test_subsets_take_integers() -> None:
    array = data.ArrayDataset(np.arange(6))
    assert [int(x) for x in data.Subset(array, iter([1, 3]))] == [1, 3]
    for indices in ([1.5], [True, False], ["a"], 5, None):
        with pytest.raises(ArgumentError, match="Subset takes indices, integers"):
            data.Subset(array, indices)
    for weights in (0, None, ["a"]):
        with pytest.raises(ArgumentError, match="weights are numbers"):
            data.WeightedRandomSampler(weights, 3)
    for chance in ("epoch", -0.1, 2, None):
        with pytest.raises(ArgumentError, match="chance is a probability"):
            transforms.RandomFlip(chance)  # type: ignore[arg-type]
    loader = data.DataLoader(array, 2)
    for epoch in ("x", None, -1, [1], 1.5):
        with pytest.raises(ArgumentError, match="takes the number of an epoch"):
            loader.order(epoch)  # type: ignore[arg-type]
    state: Any
    for state in (None, 5, "x", []):
        with pytest.raises(ArgumentError, match="the state of a loader is a mapping"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("header", [b"P5 -1 1 255\n", b"P5 -3 -3 255\n", b"P5 1_0 1 255\n", b"P5 2 2 +255\n"])
def test_maps_of_impossible_sizes_are_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "map.pgm").write_bytes(header + bytes(100))
    with pytest.raises(ArgumentError, match="its width, height and maximum are"):
        data.read_image(tmp_path / "map.pgm")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_are_refused_at_once(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.npy", "pipe.pgm", "pipe.png"):
        os.mkfifo(tmp_path / name)
    reads: list[Any] = [data.csv, lambda path: data.raw(path, "f4", (3,)), read_exported]
    for read in reads:
        with pytest.raises(ArgumentError, match="it is no ordinary file"):
            read(tmp_path / "pipe")
    for name in ("pipe.npy", "pipe.pgm", "pipe.png"):
        with pytest.raises(ArgumentError, match="it is no ordinary file"):
            data.read_image(tmp_path / name)
