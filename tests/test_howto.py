"""The code in the how-to pages runs, in order, as a reader would type it."""

import re
from pathlib import Path

import jax
import pytest

HOWTO = Path(__file__).parent.parent / "docs" / "howto"


@pytest.mark.parametrize("name", ["nnx_and_equinox"])
def test_the_examples_run(name):
    text = (HOWTO / f"{name}.md").read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert blocks
    namespace = {"__name__": "example"}
    for block in blocks:
        # Empty lines before it, so that an error names the line of the page.
        code = "\n" * text[: block.start(1)].count("\n") + block[1]
        # A reader's JAX has its own defaults: strict types are this suite's.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            exec(compile(code, f"{name}.md", "exec"), namespace)
