"""Sphinx's configuration of the documentation site.

uv run --group docs python -m sphinx -W docs build/site
"""

import os
import pathlib
import sys
import warnings

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

_TUTORIALS = (
    "first_run", "own_images", "using_the_encoder", "own_algorithm", "clients_with_memory",
    "no_server", "privacy_and_lowering",
)  # fmt: skip


class _ReadingOrder:
    """The order in which a newcomer reads the tutorials."""

    def __init__(self, folder):
        del folder  # All tutorials lie in one folder.

    def __call__(self, name):
        return _TUTORIALS.index(name.removesuffix(".py"))

    def __repr__(self):
        return "reading order"


sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "learn",
    "filename_pattern": r"\.py$",
    "within_subsection_order": _ReadingOrder,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "copyfile_regex": r".*\.rst",
}
