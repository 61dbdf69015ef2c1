"""Sphinx's configuration of the documentation site.

uv run --group docs python -m sphinx -W docs build/site
"""

import os
import pathlib
import sys
import warnings

from sphinx_gallery.sorting import ExplicitOrder

_ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(_ROOT), str(_ROOT / "docs" / "extensions")]
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

project = "tff_ssl"
author = "The authors of tff_ssl"
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "directives",
    "docstrings",
    "mathml",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["extensions", "tutorials", "generated/**/*.md5"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
suppress_warnings = ["config.cache"]  # sphinx-gallery's configuration has a class.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

html_theme = "furo"
html_title = "tff_ssl"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_math_renderer = "mathml"
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}

# In the order in which a newcomer reads them.
_TUTORIALS = (
    "first_run.py", "own_images.py", "using_the_encoder.py", "own_algorithm.py",
    "clients_with_memory.py", "no_server.py", "privacy_and_lowering.py",
)  # fmt: skip
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "learn",
    "filename_pattern": r"\.py$",
    "within_subsection_order": ExplicitOrder(_TUTORIALS),
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "copyfile_regex": r".*\.rst",
}
