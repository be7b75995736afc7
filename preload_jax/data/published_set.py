"""How a published data set is described: its files, where they are, and what they become."""

import math
from dataclasses import dataclass, field
from typing import Literal

Reader = Literal["idx", "cifar_python", "cifar_binary", "svhn", "lsun", "images_npy", "imagenet_batches", "cifar10_c"]
_BATCHES = ("cifar_python", "cifar_binary", "imagenet_batches")  # whose splits are divided among their files
_PICKLED = ("cifar_python", "imagenet_batches")  # Python 3 pickles bytes for Python 2 as text, half of them as two.
_BESIDE = 64  # bytes an image, for labels and names
_HEADER = 2**20
_ENCODED = 2**18  # bytes of an encoded image, of the sets whose images come encoded


@dataclass(frozen=True)
class RemoteFile:
    """A file on its publisher's server: `size` in bytes, `sha256` of its content (None where nobody publishes one)."""

    url: str
    size: int
    sha256: str | None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Layout:
    """One form in which a set's files come: per split their names, in the order in which `reader` wants them.

    A file may also be there as NAME.gz, or inside one of `archives` in the same folder. `common_names` says that other
    sets have files of these names, too, so that only the name of their folder tells which set they are.
    """

    reader: Reader
    files: dict[str, tuple[str, ...]]
    archives: tuple[str, ...] = ()
    common_names: bool = False


@dataclass(frozen=True)
class PublishedSet:
    """A data set that somebody publishes and `prepare` stores.

    Attributes:
      name: what the command line calls it.
      title: what the paper's tables call it.
      purpose: what the project uses it for.
      image_shape: (h, w, c) in which it is used.
      num_classes: labels are 0 … num_classes - 1; 1 for a set without labels.
      sizes: number of images a split, with our names of the splits ("train", "test").
      layouts: the forms in which a user may already have the files; the first is the one downloaded.
      remote: what is downloaded otherwise.
      tfds_name: what TFDS calls it, with its configuration; None for a set that is stored as NumPy files.
      folders: names of the sub-folder of `--source` that is looked into before that folder itself.
      tfds_splits: where TFDS's name of a split is not ours.
      transposed: whether the published images lie on their side.
      fingerprint: SHA-256 of the published test labels as bytes, where it is known.
    """

    name: str
    title: str
    purpose: str
    image_shape: tuple[int, int, int]
    num_classes: int
    sizes: dict[str, int]
    layouts: tuple[Layout, ...]
    remote: tuple[RemoteFile, ...]
    tfds_name: str | None
    folders: tuple[str, ...]
    tfds_splits: dict[str, str] = field(default_factory=dict)
    transposed: bool = False
    fingerprint: str | None = None

    @property
    def download_size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.remote)

    @property
    def file_limit(self) -> int:
        """Bytes that one of the published files may hold, unpacked: what a reader may allocate."""
        most = 0
        for layout in self.layouts:
            for split, files in layout.files.items():
                rows = -(-self.sizes.get(split, 0) // (len(files) if layout.reader in _BATCHES else 1))
                each = _ENCODED if layout.reader == "lsun" else math.prod(self.image_shape)
                if layout.reader in _PICKLED:
                    each *= 2
                most = max(most, rows * (each + _BESIDE))
        return most + _HEADER
