"""Imports point one way; a file that imports what it must not fails here."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# A module may import project modules of its own layer or a lower one.
LAYERS = [
    ["preload_jax.errors", "preload_jax.checks", "preload_jax.compilation", "preload_jax.files"],
    ["preload_jax.data", "preload_jax.models"],
    [
        "preload_jax.augment",
        "preload_jax.detectors",
        "preload_jax.guarantees",
        "preload_jax.losses",
        "preload_jax.metrics",
        "preload_jax.optimizers",
        "preload_jax.outlier_synthesis",
        "preload_jax.plan",
        "preload_jax.scores",
        "preload_jax.sharding",
        "preload_jax.steps",
        "preload_jax.torch_file",
        "preload_jax.torch_import",
        "preload_jax.training_data",
    ],
    ["preload_jax.methods"],
    [
        "preload_jax.checkpoints",
        "preload_jax.evaluation",
        "preload_jax.frozen",
        "preload_jax.training",
        "preload_jax.weights",
    ],
    # The package itself is the front door: it names what the layers below have.
    ["preload_jax.api", "preload_jax"],
    ["experiments", "benchmarks"],
]
# Heavy libraries that one place hides from the rest.
ONLY_IN = {
    "orbax": ("preload_jax/checkpoints.py",),
    "tensorflow_datasets": ("preload_jax/data/tfds_",),
    "tyro": ("experiments/",),
    "rich": ("experiments/",),
    "matplotlib": ("experiments/",),
}
FILES = sorted(p for folder in ("preload_jax", "experiments") for p in (ROOT / folder).rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source):
    """Every module that a file's text imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from preload_jax import losses` is an import of losses, not of the front door.
            if node.module != "preload_jax":
                yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(name):
    """The layer of the longest listed prefix; None for modules of other packages."""
    best = max(
        (
            (len(entry), i)
            for i, entries in enumerate(LAYERS)
            for entry in entries
            if f"{name}.".startswith(f"{entry}.")
        ),
        default=None,
    )
    return None if best is None else best[1]


def violations(name, source):
    own = layer(name)
    found = []
    for imported in imports(source):
        if layer(imported) is not None and layer(imported) > own:
            found.append(f"{name} imports {imported}")
        top = imported.split(".")[0]
        places = ONLY_IN.get(top)
        path = name.replace(".", "/")
        if places and not any(path == place.removesuffix(".py") or path.startswith(place) for place in places):
            found.append(f"{name} imports {imported}, which belongs in {places}")
    return found


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_point_one_way(path):
    name = module_name(path)
    listed = [entry for entries in LAYERS for entry in entries if entry != "preload_jax"]
    assert name == "preload_jax" or any(f"{name}.".startswith(f"{entry}.") for entry in listed), f"add {name} to LAYERS"
    assert violations(name, path.read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("preload_jax.losses", "from preload_jax import training"),
        ("preload_jax.losses", "def f():\n    import preload_jax.methods"),
        ("preload_jax.models.heads", "from preload_jax.losses import energy"),
        ("preload_jax.training", "from experiments import run"),
        ("preload_jax.methods", "import orbax.checkpoint"),
        ("preload_jax.metrics", "from rich.table import Table"),
    ],
)
def test_a_wrong_import_is_found(name, source):
    assert violations(name, source)
