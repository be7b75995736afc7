"""The paper's experiments as a list: which, in what order, how they are divided, and what they roughly cost."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from experiments.runs.run_dir import RunDir
from preload_jax.data.specs import DATASETS
from preload_jax.errors import UserError
from preload_jax.methods import METHODS

PAPER_DATASETS = ("mnist", "fashion_mnist", "svhn", "cifar10", "cifar100")
# Parts of the plan, far more than it has runs; and signs of what says them: of thousands of digits is no number.
_MOST_SHARDS, _MOST_DIGITS = 10_000, 100
# The paper's Figure 3.
PAPER_SHIFTS: dict[str, tuple[str, ...]] = {"mnist": ("rotation",), "cifar10": ("cifar10_c",)}
START = {name: row.starts_from for name, row in METHODS.items() if row.starts_from is not None}


@dataclass(frozen=True)
class Job:
    """One thing to do: a run, or a finished run's evaluation under a shift."""

    dataset: str
    method: str
    seed: int
    shift: str | None = None

    @property
    def title(self) -> str:
        return f"{self.dataset} {self.method} seed {self.seed}" + (f", {self.shift}" if self.shift else "")

    @property
    def needs(self) -> "Job | None":
        """What has to be finished first."""
        if self.shift is not None:
            return Job(self.dataset, self.method, self.seed)
        return Job(self.dataset, START[self.method], self.seed) if self.method in START else None

    def run_dir(self, root: Path) -> RunDir:
        # It has the fields of a configuration that the path depends on.
        return RunDir(runs.default_path(self, root=root))  # type: ignore[arg-type]

    def is_finished(self, root: Path) -> bool:
        run_dir = self.run_dir(root)
        return run_dir.is_finished() if self.shift is None else (run_dir.path / f"shift_{self.shift}.json").is_file()

    def problem(self, root: Path, config: Config) -> str | None:
        """Why the run that is there cannot count as this one: it has other settings; None where it can, or none is."""
        if not self.run_dir(root).config.is_file():
            return None  # Results without a configuration cannot be compared.
        try:
            runs.check_same_config(self.run_dir(root), config)
        except UserError as error:
            return str(error)
        return None

    def as_dict(self, root: Path) -> dict[str, str | int | None]:
        return {**asdict(self), "folder": str(self.run_dir(root).path)}

    def is_begun(self, root: Path) -> bool:
        return self.shift is None and self.run_dir(root).is_begun()


def jobs(
    *, datasets: Sequence[str], methods: Sequence[str], seeds: Sequence[int], shifts: dict[str, tuple[str, ...]]
) -> list[Job]:
    """The runs, then the shifts.

    By data set and seed, `standard` first, since five methods start from it; it is there when one of them is, even if
    it was not named.
    """
    order = list(METHODS)
    named = sorted(methods, key=order.index)
    if "standard" not in named and any(method in START for method in named):
        named.insert(0, "standard")
    runs = [Job(d, method, seed) for d in datasets for seed in seeds for method in named]
    shifted = [
        Job(d, method, seed, shift)
        for d in datasets
        for shift in shifts.get(d, ())
        for seed in seeds
        for method in sorted(methods, key=order.index)
    ]
    return runs + shifted


def shard(todo: Sequence[Job], index: int, count: int) -> list[Job]:
    """Part `index` (from 1) of `count`: the parts are disjoint, and all together are everything, in order.

    Whole groups that share a standard run stay together while there are enough of them; else single cells are divided.
    The next goes to the part that has the least to do.

    Raises:
        UserError: unless 1 ≤ index ≤ count ≤ 10,000.
    """
    if count > _MOST_SHARDS:
        raise UserError(f"--shard={index}/{count}: expected at most {_MOST_SHARDS:,} parts")
    if not 1 <= index <= count:
        raise UserError(f"--shard={index}/{count}: expected i/n with i from 1 to n, such as 1/{max(count, 1)}")
    groups: dict[object, list[Job]] = {}
    for cell in todo:
        groups.setdefault((cell.dataset, cell.seed), []).append(cell)
    if len(groups) < count:
        groups = {cell: [cell] for cell in todo}
    loads, mine = [0.0] * count, set()
    for group in sorted(groups.values(), key=lambda group: -seconds(group, accelerator=True)):
        part = loads.index(min(loads))
        loads[part] += seconds(group, accelerator=True)
        if part == index - 1:
            mine.update(group)
    return [cell for cell in todo if cell in mine]


def parse_shard(text: str) -> tuple[int, int]:
    """The two numbers of "i/n".

    Raises:
        UserError: when it is not two numbers.
    """
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal()) or len(text) > _MOST_DIGITS:
        raise UserError(f"--shard={text}: expected i/n with i from 1 to n, such as 1/4")
    return int(index), int(count)


# Rough seconds of one step of 128 + 128 images, and of what a run costs beside its steps (compiling, reading, testing);
# on two CPU cores, and on an H100.
_STEP_SECONDS = {
    "mlp": (0.005, 0.0002),
    "lenet": (0.31, 0.0005),
    "conv_net": (0.3, 0.0005),
    "wide_resnet": (4.0, 0.0035),
}
_OTHER_SECONDS = {"mlp": (10.0, 15.0), "lenet": (120.0, 20.0), "conv_net": (120.0, 20.0), "wide_resnet": (1800.0, 40.0)}
_TRAINING_IMAGES = {"digits": 1_297, "mnist": 60_000, "fashion_mnist": 60_000, "svhn": 73_257}
# Passes over the training images, and how much longer a step is than an ordinary one.
_EPOCHS = {
    "ddu": 0,
    "laplace": 0,
    "laplace_oe": 0,
    "rgpr": 0,
    "oe_ft": 10,
    "doe_ft": 10,
    "energy_ft": 10,
    "preload_ft": 20,
    "preload_certified_ft": 20,
}
_SLOWER = {"standard": 0.5, "doe_ft": 3.0}
_SHIFT_SECONDS = {"rotation": (60.0, 5.0), "cifar10_c": (20_000.0, 100.0), "corruptions": (25_000.0, 700.0)}


def seconds(
    todo: Iterable[Job], *, accelerator: bool, epochs: int | None = None, shift_images: int | None = None
) -> float:
    """A rough estimate of what cells cost, right within a factor of about three.

    `epochs` replaces the recipe's, and `shift_images` the 10,000 test images of a shift.
    """
    return sum(_seconds(cell, int(accelerator), epochs, shift_images) for cell in todo)


def _seconds(cell: Job, machine: int, epochs: int | None, shift_images: int | None) -> float:
    known = DATASETS.get(cell.dataset)
    if cell.shift is not None:
        full = 5.0 if known and known.backbone == "mlp" else _SHIFT_SECONDS[cell.shift][machine]
        return full if shift_images is None else max(5.0, full * min(shift_images / 10_000, 1.0))
    backbone = known.backbone if known else "conv_net"
    passes = _EPOCHS.get(cell.method, 60 if cell.dataset == "digits" else 100)
    if epochs is not None and passes:
        passes = epochs
    num_steps = passes * _TRAINING_IMAGES.get(cell.dataset, 50_000) / 128
    step = _STEP_SECONDS[backbone][machine] * _SLOWER.get(cell.method, 1.0)
    return _OTHER_SECONDS[backbone][machine] + num_steps * step
