"""Descriptions of options as paragraphs: the line ends of the source are none of the help's."""

import ast
import dataclasses
import inspect
import textwrap
from typing import Annotated, Any

import tyro


def join_lines(args_class: type[Any]) -> None:
    """Joins the lines of every option's description, of groups, too; tyro would keep their ends where they are."""
    described = _descriptions(args_class)
    for field in dataclasses.fields(args_class):
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            join_lines(field.type)
        if "\n" in (text := described.get(field.name, "")):
            args_class.__annotations__[field.name] = Annotated[
                args_class.__annotations__[field.name], tyro.conf.arg(help=" ".join(text.split()))
            ]


def _descriptions(args_class: type[Any]) -> dict[str, str]:
    """The text below each field, by the field's name."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(args_class))).body
    assert isinstance(found, ast.ClassDef)
    described = {}
    for field, below in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            described[ast.unparse(field.target)] = str(below.value.value)
    return described
