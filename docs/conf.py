"""How Sphinx builds the documentation: `bash .ci/docs` writes it into site/.  Pages need no network to be read."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import preload_jax

ROOT = Path(__file__).resolve().parents[1]

project = "PreLoad for JAX"
author = "The PreLoad for JAX developers"
copyright = author
version = release = preload_jax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinxcontrib.programoutput",
]
exclude_patterns = ["notebooks/figures", "notebooks/runs", "**/.ipynb_checkpoints"]

# Pages.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Notebooks hold their outputs; the tests execute them.
nb_execution_mode = "off"
nb_merge_streams = True
# Options of the commands, as `--help` prints them in columns that fit the page.
os.environ |= {"COLUMNS": "88", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# Docstrings.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
# The types of attributes are in the signature above them.
napoleon_custom_sections = [("Attributes", "params_style")]
python_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"
# `name` between single backticks is code, and a link where the name is on an API page.
default_role = "py:obj"
# A link between pages must lead somewhere.  Names in docstrings may be of other libraries, or not public.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

# The look.
# Two hyphens are an option, not a dash, and a message keeps its quotes.
smartquotes = False
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_css_files = ["site.css"]
# MathJax as one file out of a package: equations are drawn without a network, too.
html_static_path = [
    "assets/site.css",
    str(Path(find_spec("sphinx-mathjax-offline").origin).parent / "static/mathjax/tex-svg.js"),
]
mathjax_path = "tex-svg.js"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app):
    """What autodoc says of types and members that a reader need not see."""
    app.connect("autodoc-process-signature", _short_types)
    app.connect("autodoc-skip-member", _is_field_number)


def _short_types(app, what, name, value, options, signature, returns):
    return tuple(part and part.replace("jaxlib._jax.Array", "Array") for part in (signature, returns))


def _is_field_number(app, what, name, value, skip, options):
    """A named tuple's fields are described in its docstring; their own says "Alias for field number 0"."""
    return True if str(getattr(value, "__doc__", "")).startswith("Alias for field number") else None
