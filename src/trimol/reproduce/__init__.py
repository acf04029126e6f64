"""The paper's figures and tables, run again: `names`, `get`, `run`.

A study writes its figures (SVG and PNG), its data (parquet) and ``study.json`` into a folder of its
own. The ledger of claims reads what the others found and says which of the paper's sentences hold.
"""

from trimol.reproduce.registry import Context, Entry, get, names, register, run

__all__ = ["Context", "Entry", "get", "names", "register", "run"]

_HERE = "trimol.reproduce"
for _name, _title, _module, _function in (
    ("fig1", "Figure 1: trajectories of MGDA, static weighting and MoDo on the toy", "toy", "fig1"),
    ("fig2", "Figure 2: the three-way trade-off, region by region", "rates", "fig2"),
    (
        "fig3",
        "Figure 3: the three errors of MoDo in the strongly convex case, over T, α and γ",
        "sweeps",
        "fig3",
    ),
    ("fig4", "Figure 4: the errors of MoDo on MNIST over T, α and γ", "fig4", "fig4"),
    ("fig5", "Figure 5: the toy's runs between the two Pareto fronts", "toy", "fig5"),
    ("fig6", "Figure 6: trajectories of MoDo on the toy for four γ", "toy", "fig6"),
    ("fig7", "Figure 7: MoDo between the two Pareto fronts for four γ", "toy", "fig7"),
    ("table1", "Table 1: rates of the errors, static against dynamic weighting", "rates", "table1"),
    ("table2", "Table 2: rates of stochastic methods, generated", "rates", "table2"),
    ("table3", "Table 3: MNIST with cross-entropy, MSE and Huber loss", "table3", "table3"),
    (
        "table3-beyond",
        "Beyond Table 3: more methods on MNIST, each tuned on validation images",
        "table3_beyond",
        "beyond",
    ),
    (
        "threeway",
        "The three-way trade-off on MNIST and digits: γ from static weighting to MGDA",
        "threeway",
        "threeway",
    ),
    ("theory", "Theory against measurement: exponents and bounds", "theory", "theory"),
):
    register(_name, _title, f"{_HERE}.{_module}", _function)
_REGIME, _BUDGET = ("regime", "budget"), ("budget",)
for _name, _title, _module, _function, _options, _apart in (
    ("table4", "Table 4: Office-31, three domains", "office", "table4", _REGIME, False),
    ("table5", "Table 5: Office-Home, four domains", "office", "table5", _REGIME, False),
    (
        "table-appendix-office31",
        "Appendix: more methods on Office-31",
        "office",
        "appendix_office31",
        _REGIME,
        False,
    ),
    (
        "table-appendix-officehome",
        "Appendix: more methods on Office-Home",
        "office",
        "appendix_officehome",
        _REGIME,
        False,
    ),
    (
        "scenes",
        "Generated scenes: segmentation, depth and normals, as Table 6 but without data",
        "nyuv2",
        "scenes",
        _BUDGET,
        False,
    ),
    # These need data that are fetched apart, and a GPU.
    ("table6", "Table 6: NYU-v2, three tasks", "nyuv2", "table6", _BUDGET, True),
    (
        "table-appendix-nyuv2",
        "Appendix: more methods on NYU-v2",
        "nyuv2",
        "appendix_nyuv2",
        _BUDGET,
        True,
    ),
):
    register(_name, _title, f"{_HERE}.{_module}", _function, options=_options, apart=_apart)
register(
    "claims",
    "The ledger of claims: what the paper says, and what we measured",
    f"{_HERE}.claims",
    "claims",
)
