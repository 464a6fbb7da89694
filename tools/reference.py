"""The reference of the library, a site made from its docstrings: `python -m tools.reference FOLDER`.

It has what `threadline.__all__` names, and the modules beside it that the guides tell users to import.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

MODULES = ("threadline", "threadline.client", "threadline.core.errors", "threadline.core.events", "threadline.ports")


def write(folder: Path) -> None:
    # pdoc warns of annotations whose types are imported for type checkers only, and shows them as they are written.
    warnings.simplefilter("ignore", UserWarning)
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text="Threadline")
    pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
