"""Finding a set's files, wherever a user may have them."""

import io
import tarfile
import zipfile

import pytest

from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.readers import files
from preload_jax.errors import DataError

MNIST, CIFAR10, EMNIST = (PUBLISHED[name] for name in ("mnist", "cifar10", "emnist"))


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("where", ["", "mnist", "MNIST/raw"])
def test_folder_or_named_sub_folder(make, source, scratch, where):
    make.mnist(source / where)
    _, found = files.find(MNIST, source, scratch=scratch)
    assert found["train"] == [source / where / f"train-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1")]


def test_dotted_names_of_some_mirrors(make, source, scratch):
    make.mnist(source, zipped=False)
    for path in list(source.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    _, found = files.find(MNIST, source, scratch=scratch)
    assert found["test"][0].name == "t10k-images.idx3-ubyte"


def test_a_missing_file_is_named(make, source, scratch):
    make.mnist(source)
    (source / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="train-labels-idx1-ubyte of mnist is missing"):
        files.find(MNIST, source, scratch=scratch)


def test_a_set_may_come_without_its_training_images(make, source, scratch):
    make.cifar_python(source, 100, only=["test"])
    layout, found = files.find(PUBLISHED["cifar100"], source, scratch=scratch)
    assert layout.reader == "cifar_python"
    assert list(found) == ["test"]


def test_but_not_without_its_test_images(make, source, scratch):
    make.cifar_python(source, only=[f"data_batch_{i}" for i in range(1, 6)])
    with pytest.raises(DataError, match="test_batch of cifar10 is missing"):
        files.find(CIFAR10, source, scratch=scratch)


def test_nothing_there_says_what_was_expected(source, scratch):
    with pytest.raises(
        files.FilesNotFoundError, match=r"no files of cifar10; expected .*test_batch.bin .*python.tar.gz"
    ):
        files.find(CIFAR10, source, scratch=scratch)
    with pytest.raises(DataError, match="no such folder"):
        files.find(CIFAR10, source / "nope", scratch=scratch)


def test_files_of_common_names_only_from_a_named_folder(make, source, scratch):
    make.mnist(source)
    with pytest.raises(files.FilesNotFoundError):
        files.find(PUBLISHED["kmnist"], source, scratch=scratch, only_named=True)
    make.mnist(source / "KMNIST" / "raw")
    _, found = files.find(PUBLISHED["kmnist"], source, scratch=scratch, only_named=True)
    assert found["test"][0].parent == source / "KMNIST" / "raw"


@pytest.mark.parametrize("form", ["python", "binary"])
def test_tar_archives(make, source, scratch, tmp_path, form):
    parts = getattr(make, f"cifar_{form}")(tmp_path / "content")
    with tarfile.open(source / f"cifar-10-{form}.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "content", "cifar-10-batches")
    layout, found = files.find(CIFAR10, source, scratch=scratch)
    assert layout.reader == f"cifar_{form}"
    assert sum(map(len, found.values())) == len(parts)
    assert found["test"][0].read_bytes() == (tmp_path / "content" / found["test"][0].name).read_bytes()


def test_zip_archive_of_gzipped_files(make, source, scratch, tmp_path):
    make.mnist(tmp_path / "content", prefix="emnist-letters-", test="test")
    with zipfile.ZipFile(source / "gzip.zip", "w") as archive:
        for path in (tmp_path / "content").iterdir():
            archive.write(path, f"gzip/{path.name}")
        archive.writestr("gzip/emnist-digits-train-images-idx3-ubyte.gz", "not wanted")
    _, found = files.find(EMNIST, source, scratch=scratch)
    assert sum(map(len, found.values())) == 4
    assert len(list(scratch.iterdir())) == 4


def test_an_archive_cannot_write_elsewhere(source, scratch, tmp_path):
    """Names with .. and links are what hostile archives bring."""
    with tarfile.open(source / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name in ("../../data_batch_1", "/tmp/data_batch_1"):
            archive.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("x/test_batch")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError):
        files.find(CIFAR10, source, scratch=scratch)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "scratch"}
    assert [path.name for path in scratch.iterdir()] == ["data_batch_1"]


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_damaged_archives(make, source, scratch, tmp_path, kind):
    make.mnist(tmp_path / "content", prefix="emnist-letters-", test="test")
    make.cifar_python(tmp_path / "content")
    path = source / ("cifar-10-python.tar.gz" if kind == "tar" else "gzip.zip")
    if kind == "tar":
        with tarfile.open(path, "w:gz") as archive:
            archive.add(tmp_path / "content", "c")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for file in (tmp_path / "content").iterdir():
                archive.write(file, file.name)
    path.write_bytes(path.read_bytes()[:-1_000])
    with pytest.raises(DataError, match="damaged or truncated archive"):
        files.find(CIFAR10 if kind == "tar" else EMNIST, source, scratch=scratch)


def test_a_file_without_a_name(source, scratch):
    with zipfile.ZipFile(source / "gzip.zip", "w") as archive:
        archive.writestr("x", b"content")
    path = source / "gzip.zip"
    content = path.read_bytes()
    # The name's length, and the name, in both headers.
    content = content.replace(b"\x01\0\0\0xcontent", b"\0\0\0\0content")
    central = content.index(b"PK\1\2")
    content = content[: central + 28] + b"\0\0" + content[central + 30 : central + 46] + content[central + 47 :]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"gzip\.zip: "):
        files.find(EMNIST, source, scratch=scratch)


@pytest.mark.parametrize("form", ["python", "binary"])
def test_a_member_that_is_larger_than_the_published_file(source, scratch, form):
    with tarfile.open(source / f"cifar-10-{form}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("x/data_batch_1" + (".bin" if form == "binary" else ""))
        member.size = 64_000_000
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(DataError, match=r"data_batch_1.*: holds more than 63,128,576 bytes"):
        files.find(CIFAR10, source, scratch=scratch)
    assert list(scratch.iterdir()) == []


def test_a_file_that_is_there_twice(make, source, scratch, tmp_path):
    make.cifar_python(tmp_path / "content")
    with tarfile.open(source / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name in ("a", "b"):
            archive.add(tmp_path / "content", name)
    with pytest.raises(DataError, match=r"has \w+_batch\w* twice"):
        files.find(CIFAR10, source, scratch=scratch)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_packed_in_a_way_that_takes_memory_of_its_own(source, scratch, method):
    with zipfile.ZipFile(source / "gzip.zip", "w", method) as archive:
        archive.writestr("emnist-letters-train-images-idx3-ubyte", b"x")
    with pytest.raises(DataError, match="packed in an unusual way"):
        files.find(EMNIST, source, scratch=scratch)


def test_an_archive_of_something_else(source, scratch):
    with tarfile.open(source / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("readme"))
    with pytest.raises(DataError, match="has no files of cifar10"):
        files.find(CIFAR10, source, scratch=scratch)


def test_lsun_as_a_folder_of_images(make, source, scratch):
    make.image_folder(source, classes=("classroom",))
    make.image_folder(source, classes=("",), each=3)
    _, found = files.find(PUBLISHED["lsun_classroom"], source, scratch=scratch)
    assert len(found["test"]) == 6  # The sub-folder with the set's own name comes first.
