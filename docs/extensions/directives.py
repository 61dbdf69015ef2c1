"""The directives of the pages. Those that show figures or names make them when the site is built.

- `{hyperparameters} fedu`: the hyperparameters of an algorithm; `shared` for the inherited ones;
- `{choices} partition`: what a flag can choose;
- `{measured} dcco_table1-cpu`: an experiment's tables, measured beside published;
- `{published} hetero_table4`: the paper's tables of an experiment;
- `{report-picture} all_methods-cpu 1`: `picture_1.png` of an experiment's report, with the text
  `:alt:`;
- `{default-run} fedu`, `{default-runs}`: the default run of an algorithm on the digits, and of all;
- `{gallery-index}`: the experiments of the gallery, with their verdicts;
- `{claims} dcco`: the claims of a paper, with figures and verdicts;
- `{claim-counts}`: the claims by verdict;
- `{paper-scale}`: what the experiments' runs would take at the paper's scale;
- `{round} server | client k`: a picture of a round (see `round_pictures`);
- `{pseudocode}`: text in a fixed-width font.
"""

import pathlib

import choices
import claim_tables
import estimate_tables
import experiments
import hyperparameter_tables
import round_pictures
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


class _Markdown(SphinxDirective):
    """A directive whose content is Markdown that `markdown` writes."""

    def markdown(self) -> list[str]:
        raise NotImplementedError

    def run(self):
        try:
            lines = self.markdown()
        except (KeyError, ValueError, OSError) as error:
            raise self.error(f"{self.name}: {error!r}") from error
        container = nodes.Element()
        self.state.nested_parse(StringList(lines, source=self.name), 0, container)
        return container.children


class Hyperparameters(_Markdown):
    required_arguments = 1

    def markdown(self):
        (name,) = self.arguments
        if name == "shared":
            return hyperparameter_tables.shared_markdown()
        return hyperparameter_tables.markdown(name)


class Choices(_Markdown):
    required_arguments = 1

    def markdown(self):
        return choices.markdown(self.arguments[0])


class Measured(_Markdown):
    required_arguments = 1
    option_spec = {"tables": directives.positive_int_list}  # noqa: RUF012

    def markdown(self):
        return experiments.measured(self.arguments[0], self.options.get("tables"))


class Published(_Markdown):
    required_arguments = 1
    option_spec = {"tables": directives.positive_int_list}  # noqa: RUF012

    def markdown(self):
        return experiments.published(self.arguments[0], self.options.get("tables"))


class ReportPicture(_Markdown):
    required_arguments = 2
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012

    def markdown(self):
        folder = pathlib.Path(self.env.srcdir) / "generated"
        experiment, number = self.arguments
        name = experiments.write_picture(experiment, int(number), folder)
        if not name:
            raise ValueError(f"the report of {experiment} has no picture_{number}.png")
        return [f"![{self.options['alt']}](/generated/{name})"]


class DefaultRun(_Markdown):
    required_arguments = 1

    def markdown(self):
        return experiments.default_run(self.arguments[0])


class DefaultRuns(_Markdown):
    def markdown(self):
        return experiments.default_runs()


class GalleryIndex(_Markdown):
    def markdown(self):
        return experiments.gallery_index()


class Claims(_Markdown):
    required_arguments = 1

    def markdown(self):
        return claim_tables.paper(self.arguments[0])


class ClaimCounts(_Markdown):
    def markdown(self):
        return claim_tables.counts_table()


class PaperScale(_Markdown):
    def markdown(self):
        return estimate_tables.paper_scale()


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


def setup(app):
    app.add_directive("hyperparameters", Hyperparameters)
    app.add_directive("choices", Choices)
    app.add_directive("measured", Measured)
    app.add_directive("published", Published)
    app.add_directive("report-picture", ReportPicture)
    app.add_directive("default-run", DefaultRun)
    app.add_directive("default-runs", DefaultRuns)
    app.add_directive("gallery-index", GalleryIndex)
    app.add_directive("claims", Claims)
    app.add_directive("claim-counts", ClaimCounts)
    app.add_directive("paper-scale", PaperScale)
    app.add_directive("round", Round)
    app.add_directive("pseudocode", Pseudocode)
    app.connect(
        "builder-inited",
        lambda app: experiments.write_gallery(pathlib.Path(app.srcdir) / "generated"),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
