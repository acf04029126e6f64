"""The table of what the steps did, where they were looked at."""

from report_samples import OBJECTIVES, compared, config, record, save, without_printing

from trimol import report
from trimol.report._runs import command, comparisons
from trimol.report._step_effects import COLUMNS, FULL, NOTE, TITLE, step_effects


def looked(some, every, worst, **each):
    found = {"steps_looked": 40, "steps_raise_some": some, "steps_raise_all": every}
    found |= {f"steps_raise/{name}": each.get(name, 0.0) for name in OBJECTIVES}
    return record(1000, OBJECTIVES) | found | {"steps_worst_cosine": worst}


def runs(folder):
    rows = {
        ("mgda", 0): looked(0.25, 0.0, -0.125, MSE=0.2, Huber=0.1),
        ("mgda", 1): looked(0.25, 0.0, 0.5, MSE=0.1),
        ("static", 0): looked(0.0, 0.0, 0.25),
        ("modo", 0): record(1000, OBJECTIVES),
    }
    return {
        (method, seed): save(folder / f"{method}{seed}", config(method, seed=seed), [row])
        for (method, seed), row in rows.items()
    }


def test_a_row_for_every_method(tmp_path):
    found = runs(tmp_path)
    groups = {
        name: [run for (method, _), run in found.items() if method == name]
        for name in ("static", "mgda", "modo")
    }
    table = step_effects(groups)
    assert table.columns == ("method", *COLUMNS)
    assert table.rows == (
        ("static", "40", "0 %", "0 %", "–", "0.25"),
        ("mgda", "80", "25 ± 0 %", "0 ± 0 %", "MSE", "−0.12"),
        ("modo", "–", "–", "–", "–", "–"),
    )
    assert step_effects({"modo": groups["modo"]}) is None


def test_the_page_has_the_table_where_steps_were_looked_at(tmp_path, monkeypatch):
    without_printing(monkeypatch)
    runs(tmp_path / "with")
    text = report.write(tmp_path / "with").read_text(encoding="utf-8")
    assert text.index(TITLE) < text.index("25 ± 0 %") < text.index(NOTE)
    compared(tmp_path / "without", seeds=1)
    assert TITLE not in report.write(tmp_path / "without").read_text(encoding="utf-8")


def test_looks_tell_no_settings_apart_but_optimizers_do(tmp_path):
    rows = [record(1000, OBJECTIVES)]
    settings = ({}, {"watch_every": 5, "seed": 1}, {"optimizer": "adam"})
    found = [
        save(tmp_path / str(place), config("modo", **own), rows)
        for place, own in enumerate(settings)
    ]
    (comparison,) = comparisons(found)
    assert [len(setting.runs) for setting in comparison.settings] in ([1, 2], [2, 1])
    assert "modo optimizer=adam" in comparison.labels
    asked = config("modo", optimizer="adam", watch_every=5)
    assert "--watch-every 5 --optimizer adam" in command(asked)


def test_all_data_is_a_column_where_it_was_looked_at(tmp_path):
    seen = looked(0.25, 0.0, -0.125) | {"full_looked": 4, "full_raise_some": 0.75}
    groups = {
        "mgda": [save(tmp_path / "mgda", config("mgda"), [seen])],
        "static": [save(tmp_path / "static", config("static"), [looked(0.0, 0.0, 0.25)])],
    }
    table = step_effects(groups)
    assert table.columns[-1] == FULL
    assert [row[-1] for row in table.rows] == ["75 %", "–"]
    asked = config("modo", watch_every=5, watch_full_every=2)
    assert "--watch-every 5 --watch-full-every 2" in command(asked)
