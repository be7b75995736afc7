"""What is known of a set-up, a folder of results that were made alike, beside what its files say: its setup.toml.

title = "LeNet, photographs as outliers"
note = "What a reader of its tables must know, in Markdown."
machine = "one H100"            # of files that do not say it; likewise command and commit
[mnist]                         # of one data set alone
command = "python -m experiments.run --method=METHOD"   # METHOD stands for the method of each row
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.runs import collected
from experiments.runs.collected import Collection
from preload_jax.data.specs import DATASETS
from preload_jax.errors import UserError, reason, require_plain_file

FACTS = ("command", "commit", "machine")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Setup:
    """A set-up.

    Attributes:
        name: of its folder; "" for runs that are in no such folder.
        results: its results.
        said: what its setup.toml says.
    """

    name: str
    results: Collection
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its title, or else its name."""
        return self.said.get("title", self.name)

    @property
    def note(self) -> str:
        """A paragraph about it; may be empty."""
        return self.said.get("note", "").strip()

    def fact(self, name: str, values: dict[str, Any]) -> str:
        """The command, commit or machine of a result: what its file says, or else what setup.toml says.

        An installed copy is of no commit; its version then says what code it was.
        """
        of_dataset = self.said.get(values["dataset"], {})
        said: str = of_dataset.get(name) or self.said.get(name) or ""
        if name == "commit" and not said and values.get("version"):
            said = f"version {values['version']}"
        return values.get(name) or said.replace("METHOD", values["method"]) or UNKNOWN


def read(root: Path) -> list[Setup]:
    """The set-ups of a folder of results, see `collected.setups`.

    Raises:
        UserError: when a file is damaged, or there is none.
    """
    return [Setup(name, found, _said(root / name / "setup.toml")) for name, found in collected.setups(root).items()]


def _said(path: Path) -> dict[str, Any]:
    require_plain_file(path)
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:  # a folder of this name, or no right to read it
        raise UserError(f"{path} cannot be read: {reason(error)}") from None
    except ValueError as error:  # no TOML, or no text
        raise UserError(f"{path} is no TOML file: {error}") from None
    _check(path, values, ("title", "note", *FACTS, *DATASETS))
    for name in DATASETS:
        _check(path, values.get(name, {}), FACTS)
    return values


def _check(path: Path, values: Any, known: tuple[str, ...]) -> None:
    for name, value in values.items() if isinstance(values, dict) else [("it", values)]:
        kind = dict if name in DATASETS and name in known else str
        if name not in known or not isinstance(value, kind):
            raise UserError(
                f"{path}: {name} = {value!r}; expected some of {list(known)}, texts and for a data set a table of texts"
            )
