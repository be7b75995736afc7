"""Options of what another option chooses, taken out of the command line."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import tyro

from experiments import cli
from experiments.cli import open_options


@dataclass(frozen=True)
class Args:
    """Does nothing.

    Attributes are a network and its options.
    """

    backbone: str = "mlp"
    """A network."""
    backbone_options: cli.BackboneOptions = None
    other: Annotated[int, tyro.conf.arg(metavar="INT")] = 1
    """A number."""


def parsed(*argv: str) -> Any:
    return cli.parse(Args, argv, prog="prog")


def test_options_are_taken_whatever_their_names_are():
    found = parsed("--backbone.depth=28", "--other", "3", "--backbone", "vit", "--backbone.widen-factor", "2")
    assert found == Args("vit", {"depth": "28", "widen_factor": "2"}, 3)
    assert parsed() == Args()
    assert parsed("--backbone.mean=a=b").backbone_options == {"mean": "a=b"}


@pytest.mark.parametrize("argv", [("--backbone.depth",), ("--backbone.depth", "--other=3")])
def test_an_option_without_a_value(argv, capsys):
    with pytest.raises(SystemExit) as exit_:
        parsed(*argv)
    assert exit_.value.code == 2
    assert capsys.readouterr().err == "error: Missing value for argument '--backbone.depth'; see prog --help\n"


def test_a_command_without_such_a_field_leaves_all_arguments():
    assert open_options.taken(dataclass(type("None_", (), {})), ["--backbone.x=1"]) == (["--backbone.x=1"], {})


def test_the_field_is_no_option_itself(capsys):
    with pytest.raises(SystemExit) as exit_:
        parsed("--backbone-options=1")
    assert exit_.value.code == 2
    with pytest.raises(SystemExit):
        parsed("--help")
    assert "backbone-options" not in capsys.readouterr().out
