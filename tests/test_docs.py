"""The documentation does what it says: every page's Python and commands are executed from top to bottom, made small.

A command that cannot be run here, for a reason of `NOT_RUN`, is parsed by its own parser all the same.
"""

import contextlib
import importlib.util
import inspect
import io
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import preload_jax
from experiments import cli
from experiments.certify import picture
from experiments.evaluate import report
from experiments.paper import command as paper
from experiments.prepare_data import command as prepare_data
from experiments.run import command as run
from experiments.tune import command as tune
from experiments.tune.search_spaces import SPACES
from preload_jax import make_classifier
from preload_jax.data import datasets
from preload_jax.data.catalogue import PUBLISHED
from preload_jax.errors import UserError
from preload_jax.training import loop as training
from tests import torch_files, torch_networks
from tests.docs_text import PAGES, ROOT, SHELL, Command, all_commands, blocks, commands, split

COMMANDS = all_commands()
REAL_DATA = [name for name in datasets.DATASETS if name != "digits"]
# What stands for a name of the reader's own.
PLACEHOLDERS = {"METHOD": "preload", "PHOTOS": "photos", "DIR": "photos", "DATASET": "digits", "SCALE": "one"}
PLACEHOLDERS |= {"I": "1", "N": "2"}
# What makes each command small; the last of two equal options counts.
SMALL = {
    "experiments.run": ("--max-steps=2", "--shift-images=20", "--quiet"),
    "experiments.paper": (
        "--dataset=digits",
        "--method=standard,preload",
        "--seeds=0",
        "--max-steps=2",
        "--shift=none",
        "--quiet",
    ),
    "experiments.certify": ("--num-directions=20",),
    "experiments.tune": ("--trials=1", "--epochs=1", "--method=preload"),
}
# A pattern of the command and why it is not run.  The first that fits counts.
NOT_RUN = {
    r"--dataset=(\w+,)*(" + "|".join(REAL_DATA) + r")\b": "needs data that are not here",
    r"prepare_data .*--dataset": "downloads",
    r"figures .*toy_": "trains for long; the notebook of the paper's figures draws the same",
    r"list:data/benchmark_imglist": "needs OpenOOD's images",
    r"notmnist\.npy": "needs notMNIST, and a network trained on Fashion-MNIST",
    r"--weights=MNIST_preload": "needs a file of the authors'",
    r"--image-size=224|--start=checkpoint\.pth": "trains a large network",
    r"pip install|-m venv|pytest|ruff|mypy|\.ci/docs|nbconvert": "sets up or checks the clone: .ci/run does it",
    r"-m (benchmarks|tests)\.": "measures for minutes",
}
# Tools that a page may name, beside this project's modules.
TOOLS = ("bash", "mypy", "pip", "pytest", "python", "python3", "ruff")
MODULES = ("jupyter", "pip", "pytest", "venv")
# Pages that take longest.
SLOW = [
    f"docs/howto/{name}.md"
    for name in (
        *("builtin_data", "calibrate", "evaluate_and_predict", "own_images", "own_model", "extra_class", "paper"),
        *("serve", "torch_checkpoint"),
    )
]


def why_not(command):
    """Why a command is not run; None where it is."""
    text = " ".join(command.words)
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, text)), None)


def module_of(command):
    module = importlib.import_module(command.module)
    return importlib.import_module(f"{command.module}.__main__") if hasattr(module, "__path__") else module


def arguments(command):
    """The command's words after `python -m MODULE`, placeholders filled in."""
    return [re.sub(r"\b[A-Z]+\b", lambda m: PLACEHOLDERS.get(m[0], m[0]), word) for word in command.words[3:]]


def check_values(command, args):
    """Refuses names that the parser alone takes: of methods, data sets, …"""
    if isinstance(args, run.Args):
        own = args.dataset.startswith("folder:") or args.dataset.endswith(".npz")
        # The size is a folder's, and the folder is not here.
        run.resolve(replace(args, dataset="cifar10", image_size=None) if own else args)
    elif isinstance(args, paper.Args):
        assert paper.plan(args)
    elif isinstance(args, tune.Args):
        assert args.method in SPACES
    elif isinstance(args, prepare_data.Args):
        assert args.dataset in (None, "all", *PUBLISHED)


def understand(command):
    """Fails unless the command's own parser takes it, or it is a known tool."""
    module = command.module
    if module is None:
        assert Path(command.words[0]).name in TOOLS, f"{command}: add the tool to TOOLS, or mend the page"
    elif module.startswith("experiments."):
        parser, words = module_of(command).Args, arguments(command)
        if words == ["--help"]:
            with pytest.raises(SystemExit) as exit_:
                cli.parse(parser, words, prog="x")
            assert exit_.value.code == 0
        else:
            check_values(command, cli.parse(parser, words, prog=f"python -m {module}"))
    else:
        assert module in MODULES or importlib.util.find_spec(module), f"{command}: there is no such module"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_command_is_understood(command):
    understand(command)


@pytest.mark.parametrize("command", [c for c in COMMANDS if "pip" in c.words[0] and "install" in c.words], ids=str)
def test_pip_installs_what_there_is(command):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for i, word in enumerate(command.words):
        if match := re.fullmatch(r"\.\[(.*)\]", word):
            assert set(match[1].split(",")) <= extras.keys()
        if word == "-r":
            assert (ROOT / command.words[i + 1]).is_file()


def test_every_reason_is_needed():
    for pattern in NOT_RUN:
        if not pattern.startswith("-m ("):
            assert any(re.search(pattern, " ".join(command.words)) for command in COMMANDS), pattern


def test_commands_in_the_text_are_understood():
    """`python -m experiments.NAME --option` between backticks."""
    found = 0
    for page in PAGES:
        for text in re.findall(r"(?<!`)`(python -m experiments\.[^`]*)`(?!`)", page.read_text()):
            for words in split(" ".join(text.split())):
                command = Command(page.name, 0, words)
                # Placeholders such as NAME in prose are no command.
                if not re.search(r"\b(NAME|MODULE)\b", text) and len(words) > 3 and words[3] != "--help":
                    check_values(command, cli.parse(module_of(command).Args, arguments(command), prog="x"))
                    found += 1
    assert found


@pytest.mark.parametrize(
    "line",
    ["run --methd=preload", "run --method=prelod", "run --epochs=many", "paper --dataset=minst", "paper --seed=1"],
)
def test_a_wrong_command_is_found(line):
    with pytest.raises((SystemExit, UserError)):
        understand(Command("x", 1, ("python", "-m", *shlex.split(f"experiments.{line}"))))


def documented():
    """(module, name or None for all of them) of every directive of the API pages."""
    for page in sorted((ROOT / "docs" / "reference" / "api").glob("*.md")):
        current = None
        for line in page.read_text().split("\n"):
            match line.split():
                case ["..", "currentmodule::", module]:
                    current = module
                case ["..", "autofunction::" | "autoclass::" | "autoexception::", name]:
                    yield current, name
                case ["..", "automodule::", module]:
                    current = module
                case [":members:", *names]:
                    yield from ((current, name.rstrip(",")) for name in names)
                    if not names:
                        yield current, None


@pytest.mark.parametrize("name", preload_jax.__all__)
def test_every_public_name_is_on_an_api_page(name):
    value = getattr(preload_jax, name)
    assert any(
        importlib.import_module(module) is value
        if inspect.ismodule(value)
        else shown in (None, name) and getattr(importlib.import_module(module), name, None) is value
        for module, shown in documented()
    )


def test_nothing_is_on_two_api_pages():
    listed = list(documented())
    assert len(listed) == len(set(listed))
    for module, name in listed:
        assert name is None or hasattr(importlib.import_module(module), name)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Somebody in an empty folder with two folders of images: `photos` has class folders, `other_photos` none."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ["photos/cat", "photos/dog", "other_photos"]:
        (tmp_path / name).mkdir(parents=True)
        for i in range(90):
            Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(tmp_path / name / f"{i}.png")
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    # Drawn in tests/experiments; here the drawing would take most of the time.
    monkeypatch.setattr(report, "score_histograms", lambda *_, **__: Figure((1, 1)))
    monkeypatch.setattr(picture, "draw", lambda *_, **__: Figure((1, 1)))
    return tmp_path


def given(page):
    """The names that a page takes from the reader."""
    rng = np.random.default_rng(0)
    if page.name == "torch_checkpoint.md":
        torch_files.save(Path("checkpoint.pth"), torch_files.tensors(torch_networks.resnet(classes=2)))
    if page.name in ("guarantees.md", "serve.md") and page.parent.name != "api":
        model = make_classifier("mlp", "square_logit", num_classes=10, initial_scale="inverse_width", widths=(16,))
        variables = training.init_variables(model, (8, 8, 1), key=jax.random.key(0))
        return {
            "model": model,
            "variables": variables,
            "held_out": rng.random((200, 8, 8, 1), np.float32),
            "directions": rng.normal(size=(5, 8, 8, 1)),
            "images": rng.random((128, 8, 8, 1), np.float32),
            "labels": np.arange(128) % 10,
            "outliers": rng.random((128, 8, 8, 1), np.float32),
        }
    return {}


def carry_out(command, monkeypatch):
    """Runs `python -m …` in this process; its status must be 0."""
    module = module_of(command)
    words = [*arguments(command), *SMALL.get(command.module, ())]
    if command.module in ("experiments.run", "experiments.paper") and not any(
        word.startswith("--outliers") for word in words
    ):
        words.append("--outliers=uniform")  # the photo's crops take longer than the training
    monkeypatch.setattr(sys, "argv", [command.module, *words])
    with pytest.raises(SystemExit) as exit_:
        cli.run_command(module.main, module.Args, prog=f"python -m {command.module}")
    assert exit_.value.code == 0, command


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for page in PAGES
        if (name := str(page.relative_to(ROOT))) != "docs/reference/commands.md"
        and any(block.language in ("python", *SHELL) for block in blocks(page))
    ],
)
def test_page_works(page, reader, monkeypatch):
    namespace = given(page)
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            # Blank lines above, so that a traceback shows the page's own line numbers.
            code = compile("\n" * (block.line - 1) + block.text, page, "exec")
            # A reader's JAX has its own defaults: strict types are this suite's.
            with (
                contextlib.redirect_stdout(io.StringIO()) as output,
                jax.numpy_dtype_promotion("standard"),
                jax.numpy_rank_promotion("allow"),
            ):
                exec(code, namespace)
            printed = output.getvalue()
        elif block.language in SHELL:
            for command in commands(block):
                if why_not(command) is None:
                    carry_out(command, monkeypatch)
        elif block.language == "text" and printed:
            assert block.text == printed, f"{block.page}:{block.line} shows other output than the code above it has"


def test_what_pages_write_is_ignored_by_git():
    """Files that their code and commands make, and folders of images that a reader is told to have."""
    if not (ROOT / ".git").exists():
        pytest.skip("no clone")
    files = r"""(?:--(?:figure|export|out|state)=| > |\b(?:save|savez)\(")([\w-]+\.\w+)"""
    folders = r"""folder:([a-z]\w*)|Path\("(\w+)"\)\.mkdir"""
    texts = [block.text for page in PAGES for block in blocks(page) if block.language in ("python", *SHELL)]
    named = {name for text in texts for found in re.findall(f"{files}|{folders}", text) for name in found if name}
    assert {"scores.png", "leaderboard.md", "photos", "incoming"} <= named
    # A name with a slash behind it is a folder's, whether it is there or not.
    asked = "\n".join(name if "." in name else f"{name}/" for name in sorted(named))
    done = subprocess.run(["git", "check-ignore", "--stdin"], input=asked, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == asked.splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    """Paths between backticks and in commands; a bare name may be of any folder, and `models/` is in the library."""
    text = page.read_text()
    if page.name == "architecture.md":
        text = re.sub(r"```diff.*?```", "", text, flags=re.DOTALL)  # what a recipe adds is not there yet
    named = set(re.findall(r"`([\w./-]+\.py)`", text)) | set(re.findall(r"\btests/[\w/]+\.py\b", text))
    roots = [ROOT, *(ROOT / name for name in ("preload_jax", "experiments", "tests"))]
    missing = [
        name
        for name in sorted(named)
        if not any((root / name).exists() for root in roots)
        and ("/" in name or not any(list(root.rglob(name)) for root in roots[1:]))
    ]
    assert not missing
