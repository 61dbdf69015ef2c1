"""Names and colours of the methods of an experiment."""

from tff_ssl.reporting.experiment import Cell, Experiment, Table
from tff_ssl.reporting.measured import Selector
from tff_ssl.reporting.methods import Method, method_styles, methods_of_cells

LINEAR = Selector("linear", 500)
UNTRAINED = LINEAR._replace(baseline="random_encoder")


def experiment(cells, *tables, **fields):
    return Experiment(
        "e", "E", tuple(Cell(cell, "pretrain", ()) for cell in cells), tables, (), **fields
    )


def table(columns, rows, selectors=None, published=None):
    return Table("T", LINEAR, columns, rows, published or {}, selectors or {})


SETTINGS = table(
    ("IID", "non-IID"),
    {"(untrained)": ("central",), "FedAvg": (None, "fedavg_1"), "DCCO": ("dcco_0", "dcco_1"),
     "Central": ("central",)},
    {"(untrained)": UNTRAINED},
)  # fmt: skip


def test_a_cell_is_called_by_its_row_and_column():
    other = table(("accuracy",), {"DCCO again": ("dcco_0",), "Alone": ("alone",)})
    cells = ("fedavg_1", "dcco_0", "dcco_1", "central", "alone", "in_no_table")
    methods = methods_of_cells(experiment(cells, SETTINGS, other))
    assert methods == {
        "fedavg_1": Method("FedAvg", "non-IID", ("non-IID",)),
        "dcco_0": Method("DCCO", "IID", ("IID",)),
        "dcco_1": Method("DCCO", "non-IID", ("non-IID",)),
        "central": Method("Central", "", ("IID", "non-IID")),
        "alone": Method("Alone", "", ("",)),
        "in_no_table": Method("in_no_table", "", ("",)),
    }
    assert [m.label for m in methods.values()][:4] == [
        "FedAvg, non-IID", "DCCO, IID", "DCCO, non-IID", "Central",
    ]  # fmt: skip


def test_columns_are_the_methods_where_rows_are_parts_of_the_same_cells():
    cells = ("local", "hetero")
    parts = table(("Local", "Hetero"), {"small clients": cells, "large clients": cells})
    names = [method.name for method in methods_of_cells(experiment(cells, parts)).values()]
    assert names == ["Local", "Hetero"]


def test_a_choice_has_the_name_of_its_row_and_one_cell_once_it_is_made():
    rates = ("rate_1", "rate_2")
    chosen = table(("IID",), {"FedAvg": ("FedAvg, IID",)})
    some = experiment(rates, chosen, choices={"FedAvg, IID": rates})
    method = Method("FedAvg", "", ("",))
    assert methods_of_cells(some) == {"rate_1": method, "rate_2": method}
    assert methods_of_cells(some, {"FedAvg, IID": "rate_2"}) == {"rate_2": method}


def test_a_method_has_one_style_and_baselines_have_their_own():
    many = table(
        ("accuracy",), {f"m{i}": (f"m{i}",) for i in range(12)}, published={"paper": (1.0,)}
    )
    cells = [f"m{i}" for i in range(12)]
    styles = method_styles(experiment([*cells, "more"], SETTINGS, many))
    methods = ("FedAvg", "DCCO", "Central", *cells, "paper", "more")
    pairs = [tuple(styles[name].values()) for name in methods]
    assert len(set(pairs)) == len(methods)
    baseline = styles["(untrained)"]["color"]
    assert baseline not in {styles[name]["color"] for name in methods}
    # The same baseline has the same colour in another experiment.
    assert method_styles(experiment((), SETTINGS))["(untrained)"]["color"] == baseline
