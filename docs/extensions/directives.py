"""The directives of the pages, whose figures and names are made when the site is built.

- `{hyperparameters} fedu`: the hyperparameters of an algorithm; `shared` for the inherited ones;
- `{choices} partition`: the values of a flag;
- `{measured} dcco_table1-cpu`: an experiment's tables, measured beside published;
- `{published} hetero_table4`: the paper's tables of an experiment;
- `{below-pixels} all_methods-cpu`: which methods of an experiment are below raw pixels;
- `{paired} all_methods-cpu FedAvg`: an experiment's methods less one of them, with intervals;
- `{report-picture} all_methods-cpu 1`: `picture_1.png` of an experiment's report, with the text
  `:alt:`;
- `{default-run} fedu`: an algorithm's default run on the digits, and its row of the comparison;
- `{default-runs}`: the default runs of all algorithms on the digits;
- `{gallery-index}`: the experiments of the gallery, with their verdicts;
- `{claims} dcco`: the claims of a paper, with figures and verdicts;
- `{claim-counts}`: the claims by verdict;
- `{claim-bounds}`: the margins and factors of claims;
- `{verdict-rates}`: the error rates and the power of the rule of verdicts;
- `{paper-scale}`: what the experiments' runs would take at the paper's scale;
- `{round} server | client k`: a picture of a round (see `round_pictures`);
- `{pseudocode}`: text in a fixed-width font.
"""

from collections.abc import Callable

import choices
import claim_tables
import estimate_tables
import experiments
import hyperparameter_tables
import round_pictures
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from markdown_tables import ROOT
from sphinx.util.docutils import SphinxDirective

_GENERATED = ROOT / "docs" / "generated"


class _Markdown(SphinxDirective):
    """A directive whose content is Markdown, which `write` makes of its arguments and options."""

    write: Callable[..., list[str]]

    def run(self):
        try:
            lines = self.write(*self.arguments, **self.options)
        except (KeyError, ValueError, OSError) as error:
            raise self.error(f"{self.name}: {error!r}") from error
        container = nodes.Element()
        self.state.nested_parse(StringList(lines, source=self.name), 0, container)
        return container.children


def _report_picture(experiment: str, number: str, alt: str) -> list[str]:
    name = experiments.write_picture(experiment, int(number), _GENERATED)
    if not name:
        raise ValueError(f"the report of {experiment} has no picture_{number}.png")
    return [f"![{alt}](/generated/{name})"]


class Round(SphinxDirective):
    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        lanes = [lane.strip() for lane in self.arguments[0].split("|")]
        try:
            picture = round_pictures.draw(lanes, [line for line in self.content if line.strip()])
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", f"<figure>{picture}</figure>", format="html")]


class Pseudocode(SphinxDirective):
    has_content = True

    def run(self):
        text = "\n".join(self.content)
        return [nodes.literal_block(text, text, language="none", classes=["pseudocode"])]


# Name -> function of its arguments and options, number of arguments, options.
_TABLES = {"tables": directives.positive_int_list}
_MARKDOWN = {
    "hyperparameters": (hyperparameter_tables.markdown, 1, {}),
    "choices": (choices.markdown, 1, {}),
    "measured": (experiments.measured, 1, _TABLES),
    "published": (experiments.published, 1, _TABLES),
    "below-pixels": (experiments.below_pixels, 1, {}),
    "paired": (experiments.paired, 2, {}),
    "report-picture": (_report_picture, 2, {"alt": directives.unchanged_required}),
    "default-run": (experiments.default_run, 1, {}),
    "default-runs": (experiments.default_runs, 0, {}),
    "gallery-index": (experiments.gallery_index, 0, {}),
    "claims": (claim_tables.paper, 1, {}),
    "claim-counts": (claim_tables.counts_table, 0, {}),
    "claim-bounds": (claim_tables.bounds_table, 0, {}),
    "verdict-rates": (claim_tables.rates_table, 0, {}),
    "paper-scale": (estimate_tables.paper_scale, 0, {}),
}


def setup(app):
    for name, (write, arguments, options) in _MARKDOWN.items():
        members = {"write": staticmethod(write), "required_arguments": arguments,
                   "option_spec": options}  # fmt: skip
        app.add_directive(name, type(name, (_Markdown,), members))
    app.add_directive("round", Round)
    app.add_directive("pseudocode", Pseudocode)
    app.connect("builder-inited", lambda app: experiments.write_gallery(_GENERATED))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
