"""What MkDocs itself does not do: notebooks as pages, each command's --help, equations without script or network."""

import html
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File
from nbconvert import MarkdownExporter
from nbconvert.filters import strip_ansi
from nbconvert.preprocessors import CoalesceStreamsPreprocessor

ROOT = Path(__file__).resolve().parents[1]
# Columns of help that fit beside the two side bars.
HELP_ENVIRONMENT = {"COLUMNS": "86", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def on_files(files, config):
    """Adds notebooks/*.ipynb, with the outputs that they hold, as pages; nothing is executed."""
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, resources = MarkdownExporter(preprocessors=[CoalesceStreamsPreprocessor]).from_filename(str(notebook))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=strip_ansi(text)))
        for name, content in resources["outputs"].items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Puts what it prints below each console block that is one `python -m MODULE --help`."""
    return re.sub(r"(?m)^```console\n\$ python -m (\S+) --help\n```$", _with_help, markdown)


def _with_help(block):
    command = [sys.executable, "-m", block[1], "--help"]
    done = subprocess.run(
        command, env=os.environ | HELP_ENVIRONMENT, cwd=ROOT, capture_output=True, check=True, encoding="utf-8"
    )
    # Boxes have the width asked for; the description above them is one long line.
    lines = "\n".join(textwrap.fill(line, int(HELP_ENVIRONMENT["COLUMNS"])) for line in done.stdout.strip().split("\n"))
    return f"{block[0]}\n\n```text\n{lines}\n```"


def on_page_content(content, page, config, files):
    """LaTeX → MathML, which browsers draw themselves."""
    content = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', lambda m: _mathml(m[1], "inline"), content)
    return re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', _equation, content, flags=re.DOTALL)


def _equation(found):
    latex, _, number = found[1].partition(r"\tag")
    label = f"<span>({number.strip(' {}')})</span>" if number else ""
    return f'<div class="equation">{_mathml(latex, "block")}{label}</div>'


def _mathml(latex, display):
    return convert(html.unescape(latex).strip(), display=display)
