"""What every command line shares: parsing, one-line errors, exit statuses, the terminal."""

from experiments.cli.command_line import (
    DataDir,
    DataPlacement,
    Devices,
    Json,
    Quiet,
    RecipeBool,
    RecipeFloat,
    RecipeInt,
    RecipeStr,
    TensorBoard,
    explain_os_error,
    fail,
    option,
    overrides,
    parse,
    run_command,
)

__all__ = [
    "DataDir",
    "DataPlacement",
    "Devices",
    "Json",
    "Quiet",
    "RecipeBool",
    "RecipeFloat",
    "RecipeInt",
    "RecipeStr",
    "TensorBoard",
    "explain_os_error",
    "fail",
    "option",
    "overrides",
    "parse",
    "run_command",
]
