"""The claims of the five papers, and the runs that try them.

Each paper has a module, which says of every claim by which runs it was tried, and of the others
why they were not. What was measured is not here: it is read from `measured/`. `NOTED` has the
figures whose results are not kept; they are in `measured/noted.jsonl`.
"""

from markdown_tables import ROOT

from paper_claims import dcco, dec_ssl, denav, fedu, hetero_ssfl, records

PAPERS = {
    "dcco": "DCCO",
    "fedu": "FedU",
    "dec_ssl": "Dec-SSL and FeatARC",
    "hetero_ssfl": "Hetero-SSFL",
    "denav": "DeNAV",
}

# Rows of tables -> shorter names.
SHORT = {
    "Proposed DCCO": "DCCO",
    "Contrastive + FedAvg": "contrastive",
    "Centralized CCO": "centralized",
    "Supervised from scratch": "from scratch",
    "(untrained encoder)": "untrained",
    "Single client training": "single clients",
    "tiny (in place of ResNet-18)": "tiny",
    "small (in place of ResNet-34)": "small",
    "DeNAV, 3000 epochs": "DeNAV",
    "Random route, 3000 epochs": "random route",
    "Gossip learning, 3000 epochs": "gossip",
    "All-reduce, 3000 epochs": "all-reduce",
    "From scratch": "from scratch",
}

_MODULES = (dcco, fedu, dec_ssl, hetero_ssfl, denav)

CLAIMS = tuple(claim for module in _MODULES for claim in module.CLAIMS)
NOTED = records.read_noted(ROOT / "measured" / "noted.jsonl")
