"""Image lists in OpenOOD's form, read into arrays."""

from pathlib import Path

from preload_jax.data.readers import image_folder, image_list
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.splits import Arrays


def read_image_list(
    path: str | Path,
    image_shape: tuple[int, int, int],
    *,
    root: str | Path | None = None,
    strict: bool = False,
    report: Report | None = None,
) -> Arrays:
    """Reads the images of a list in OpenOOD's form, and their labels.

    Args:
      path: of the list: a line an image, "PATH LABEL"; the labels of OOD images are -1.
      image_shape: (h, w, c) that the images are squashed to.
      root: the folder that the paths start from.  None: the first of the list's folder and those above it, and of
        `images_classic` and `images_largescale` in each, that has the first image.
      strict: an unreadable image is an error; else it is skipped.
      report: is told, in one line each, what was skipped or changed.

    Returns:
      `Arrays`: images uint8 [n, h, w, c], labels int32 [n].

    Raises:
      DataError: for a list that is missing, empty or of another form, and images that are missing or unreadable.

    Example:
      >>> import pathlib, tempfile
      >>> import numpy as np
      >>> from PIL import Image
      >>> from preload_jax.data import datasets
      >>> folder = pathlib.Path(tempfile.mkdtemp())
      >>> Image.fromarray(np.full((8, 8), 7, np.uint8)).save(folder / "0001.png")
      >>> _ = (folder / "test.txt").write_text("0001.png -1\\n")
      >>> found = datasets.read_image_list(folder / "test.txt", (8, 8, 1))
      >>> found.images.shape, found.labels.tolist()
      ((1, 8, 8, 1), [-1])
    """
    path = Path(path).expanduser()
    paths, labels = image_list.find_images(path, None if root is None else Path(root).expanduser())
    images, rows = image_folder.read_squashed(paths, image_shape, where=path, strict=strict, report=report)
    return Arrays(images=images, labels=labels[rows])
