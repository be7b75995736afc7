"""Imports point one way, room by room; a file that imports what it must not fails here."""

import pytest

from tests import rooms

# Heavy libraries that one place hides from the rest.
ONLY_IN = {
    "orbax": ("preload_jax/formats/checkpoints.py",),
    "tensorflow_datasets": ("preload_jax/data/preparing/tfds_",),
    "equinox": ("preload_jax/adapters/equinox.py",),
    "tyro": ("experiments/",),
    "rich": ("experiments/", "preload_jax/api/watching.py"),
    "matplotlib": ("experiments/",),
}
# These hold rows without JAX, from which help and titles derive.
WITHOUT_JAX = ("preload_jax.methods", "preload_jax.backbones", "preload_jax.errors")
FILES = [path for package in rooms.PACKAGES for path in rooms.files(package)]


def violations(name, source):
    own = rooms.room(name)
    found = []
    for imported in rooms.imports(source):
        other = rooms.room(imported)
        if own is not None and other is not None and other != own:
            packages = [each.split(".")[0] for each in (own, other)]
            upward = packages[0] == packages[1] and rooms.floor(other) >= rooms.floor(own)
            if upward or packages == ["preload_jax", "experiments"]:
                found.append(f"{name} imports {imported}")
        top = imported.split(".")[0]
        places = ONLY_IN.get(top)
        path = name.replace(".", "/")
        if places and not any(path == place.removesuffix(".py") or path.startswith(place) for place in places):
            found.append(f"{name} imports {imported}, which belongs in {places}")
        if name in WITHOUT_JAX and top in ("jax", "flax", "numpy"):
            found.append(f"{name} imports {imported}, and must stay quick to import")
    return found


@pytest.mark.parametrize("path", FILES, ids=rooms.module_name)
def test_imports_point_one_way(path):
    name = rooms.module_name(path)
    own = rooms.room(name)
    assert own is None or rooms.floor(own) is not None, f"put {own} on a floor of tests/rooms.py"
    assert violations(name, path.read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("preload_jax.losses", "from preload_jax.training import loop"),
        ("preload_jax.losses", "def f():\n    import preload_jax.methods"),
        ("preload_jax.models.heads", "from preload_jax.formats import weights"),
        ("preload_jax.training.loop", "from experiments.run import workflow"),
        ("preload_jax.methods", "import orbax.checkpoint"),
        ("preload_jax.methods", "import jax"),
        ("preload_jax.metrics", "from rich.table import Table"),
        ("experiments.runs.folder", "from experiments.tables import cells"),
    ],
)
def test_a_wrong_import_is_found(name, source):
    assert violations(name, source)


def test_no_file_has_outgrown_its_idea():
    long = {rooms.module_name(path): n for path in FILES if (n := len(path.read_text().splitlines())) > 300}
    assert long == {}


def test_the_picture_of_the_rooms_is_what_the_imports_say():
    # `python -m tests.rooms --write` draws it anew.
    assert rooms.PICTURE.read_text() == rooms.svg()
