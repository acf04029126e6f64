"""The ledger: its file is sound, and verdicts come from data alone."""

import polars
import pytest

from trimol import paper as reproduce
from trimol.paper import _verdicts as verdicts
from trimol.paper import claims
from trimol.paper._studies import Context
from trimol.paper.claims import Claim, judge, ledger
from trimol.runs import study as results
from trimol.runs.study import Study, row


def test_every_claim_names_a_study_and_a_statistic():
    for claim in ledger():
        assert claim.quote, claim.id
        assert claim.where, claim.id
        if claim.run:
            assert claim.study in reproduce.names(), claim.id
        verdicts.get(claim.statistic)


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
        Claim("rows", study="fig0", table="rows", **{**known, "statistic": "as_printed"}),
        Claim("later", study="slow", table="values", **known),
    ]
    monkeypatch.setattr(claims, "ledger", lambda: listed)
    table = polars.DataFrame({"measured": [measured], "bound": [1.0]})
    rows = [row("modo", "m", [2.0], paper=2.0)]
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
    claim = Claim("t", "q", "w", study="table1", table="rows", statistic="as_printed", run=True)
    monkeypatch.setattr(claims, "ledger", lambda: [claim])
    study = claims.claims(Context(tmp_path / "claims", tmp_path / "parts", tmp_path))
    assert study.rows[0]["verdict"] == "holds"
    assert (tmp_path / "table1" / "study.json").is_file()


def test_a_missing_table_is_one_clear_line():
    claim = Claim("c", "q", "w", study="s", table="nowhere", statistic="bounded")
    with pytest.raises(ValueError, match="claim c: study s has no table 'nowhere'"):
        judge(claim, Study("s", "S", rows=[]))
