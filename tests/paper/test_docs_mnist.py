"""The tables of the docs are those of the committed results."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "results").glob("*.json"))


def test_the_pages_hold_what_was_measured(load_script) -> None:
    measured = load_script("docs/measured.py")
    pages = {path.name: path.read_text(encoding="utf-8") for path in measured.pages()}
    assert {"mnist.md", "office.md"} <= set(pages)
    for page in pages.values():
        assert measured.filled(page) == page
    together = "".join(pages.values())
    for path in RESULTS:
        assert f"<!-- measured: {path.stem}" in together


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_say_where_they_are_from(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["study"] == path.stem
    study, finetune, _ = path.stem.partition("-finetune")
    script = f"benchmarks/{study}.py"
    by_script = (ROOT / script).exists()
    made = f"python {script}" if by_script else f"trimol reproduce {study}"
    assert found["command"].startswith(made)
    assert ("--regime finetune" in found["command"]) == bool(finetune)
    # The paper's regime needs a GPU: its page says that what it shows is a quick run.
    assert finetune or "--quick" not in found["command"]
    assert found["created"].startswith("20")
    assert len(found["environment"]["commit"]) == 40


def test_a_number_that_changes_changes_the_page(load_script, monkeypatch) -> None:
    measured = load_script("docs/measured.py")
    page = "<!-- measured: table3 -->\nold\n<!-- end -->"
    found = measured.study("table3")
    found["rows"][0]["mean"] = 0.5
    monkeypatch.setattr(measured, "study", lambda name: found)
    assert "500.0 ±" in measured.filled(page)
    monkeypatch.setattr(measured, "study", lambda name: None)
    assert "Not measured yet: `trimol reproduce table3`." in measured.filled(page)


def test_a_multi_task_table_shows_per_cent_and_the_papers(load_script) -> None:
    measured = load_script("docs/measured.py")
    common = {"n": 5, "budget": "equal", "lr": 1e-4, "weight_decay": 1e-3}
    rows = [
        {"method": "alone", "metric": "amazon accuracy", "mean": 0.85, "std": None, "ci": None}
        | {"n": 1, "paper": None, "budget": "equal"},
        {"method": "static", "metric": "amazon accuracy", "mean": 0.8461, "std": 0.0071}
        | {"ci": 0.01, "paper": 0.8462, **common},
        {"method": "static", "metric": "ΔA_id", "mean": 2.5, "std": 0.1, "ci": 0.124}
        | {"paper": 2.56, **common},
    ]
    shown = measured._multitask(rows).splitlines()
    assert shown[0] == "| method | amazon accuracy | ΔA_id |"
    assert shown[2] == "| alone | 85.0 |  |"
    setting = "lr = 0.0001, weight decay = 0.001"
    assert shown[3] == f"| static ({setting}) | 84.6 ± 0.7 (84.62) | 2.50 ± 0.12 (2.56) |"


def test_the_table_beyond_shows_what_differs_from_static(load_script) -> None:
    measured = load_script("docs/measured.py")
    shown = ("cross-entropy", "MSE", "Huber", "accuracy", *measured.ERRORS)
    common = {"std": 0.1, "n": 10, "paper": None, "steps": 1000, "schedule": "linear"}
    rows = [
        {"method": method, "metric": metric, "mean": mean, **common, **own}
        | ({} if method == "static" else {"difference": -0.1, "difference_ci": 0.02, "p": p})
        for method, mean, own, p in (
            ("static", 0.3, {"lr": 0.4, "weights": [0.1, 0.3, 0.6]}, None),
            ("modo", 0.2, {"lr": 1.0, "gamma": 0.01}, 0.01),
            ("mgda", 0.4, {"lr": 3.0}, 0.2),
        )
        for metric in shown
    ]
    means, apart = (part.splitlines() for part in measured._beyond(rows).split("\n\n"))
    assert means[2].startswith("| modo (schedule = linear, lr = 1, gamma = 0.01) | 0.2 |")
    assert means[3].startswith("| static (schedule = linear, lr = 0.4, weights = 0.1/0.3/0.6) |")
    assert apart[2] == "| modo |" + " **-0.1 ± 0.02** |" * 4
    assert apart[3] == "| mgda |" + " -0.1 ± 0.02 |" * 4
    assert len(apart) == 4


def test_a_place_for_claims_names_which(load_script, monkeypatch) -> None:
    measured = load_script("docs/measured.py")
    known = {"where": "w", "verdict": "holds", "mean": None}
    found = measured.study("claims")
    found["rows"] = [
        {**known, "quote": "ours", "metric": "office31-a"},
        {**known, "quote": "other", "metric": "mnist-b"},
    ]
    monkeypatch.setattr(measured, "study", lambda name: found)
    assert "“ours” (w)" in measured.measured("claims:office")
    assert "other" not in measured.measured("claims:office")
    assert "Not judged yet" in measured.measured("claims:nyuv2")


def test_a_regime_has_a_command_of_its_own(load_script) -> None:
    measured = load_script("docs/measured.py")
    assert measured._command("table4-finetune") == "trimol reproduce table4 --regime finetune"
    assert measured._command("table3-beyond") == "trimol reproduce table3-beyond"


def test_tables_of_physics_by_protocol(load_script) -> None:
    measured = load_script("docs/measured.py")
    row = {"protocol": "published", "method": "config", "paper": 0.00638, "best": 0.1, "last": 0.2}
    found = {"rows": [row]}
    assert "| config | 0.00638 | 0.10000 | 0.20000 |" in measured._published(found)
    table = measured.PHYSICS["equal-time"]
    assert "Not measured yet" in table(found)
    for method, error, cost in (("mgda", 0.3, 1.3), ("static", 0.1, 1.0)):
        of = {"method": method, "points": 2000}
        found["rows"].append({"protocol": "cost", **of, "cost": cost})
        found["rows"].append({"protocol": "cost", "method": method, "points": 200, "cost": 9.0})
        for seed in (0, 1):
            ends = {"MSE": error + seed / 10, "size": 0.01, "steps": 770, "lr": 1e-3}
            found["rows"].append({"protocol": "equal-time", **of, "seed": seed, **ends})
    *_, first, last = table(found).splitlines()
    assert first == "| static | 1.00 | 770 | 0.001 | 2 | 0.15 | 0.1–0.2 | 1 | 0.01–0.01 |"
    assert last.startswith("| mgda | 1.30 | 770 | 0.001 | 2 | 0.35 | 0.3–0.4 | 2.4 (0.19–32) |")
    assert "Not measured yet" in measured.PHYSICS["equal-time-small"](found)
    found["rows"][0] |= {"best by its reference": 0.05, "disturbed": 1}
    assert "| 0.10000 | 0.05000 | 0.20000 |" in measured._published(found)


def test_tables_of_the_classic_toy_and_of_molecules(load_script) -> None:
    measured = load_script("docs/measured.py")
    ways = [
        {"method": "static", "reached": 3, "distances": [4.3, 0.0013, 12.0, 0.0013, 0.0013]},
        {"method": "config", "reached": 5, "distances": [0.01] * 5},
    ]
    ways = [{"steps": 35_000, "coarse": 1, **way} for way in ways]
    *_, first, last = measured._ways(ways).splitlines()
    assert first.startswith("| config | 5 of 5 | 0.01 |")
    assert last == "| static | 3 of 5 | 4.3 | 0.0013 | 12 | 0.0013 | 0.0013 |"
    deltas = {
        "static": [10.0, 11.0, 12.0, 10.5, 11.5],
        "famo": [20.0, 21.0, 22.5, 20.3, 21.1],
        "uw": [9.0, 12.0, 12.5, 9.5, 13.0],
    }
    rows = [{"method": "alone", "metric": "mu MAE", "mean": 0.5}]
    for name, values in deltas.items():
        rows.append({"method": name, "metric": "mu MAE", "mean": 0.6})
        rows.append({"method": name, "metric": "Δm", "mean": sum(values) / 5, "values": values})
    found = {"rows": rows, "costs": {"famo": 0.94}, "literature": {"a paper": {"mu": 0.03}}}
    *head, alone, static, uw, famo, last = measured._molecules(found).splitlines()
    assert head[0] == "| method | Δm | beside static | a step × plain | mu |"
    assert alone == "| alone |  |  |  | 0.5 |"
    assert static == "| static | +11.0 % |  |  | 0.6 |"
    assert uw == "| uw | +11.2 % | +0.2 ± 1.4 |  | 0.6 |"
    assert famo == "| famo | +21.0 % | +10.0 ± 0.4 **worse** | 0.9 | 0.6 |"
    assert last == "| a paper |  |  |  | 0.03 |"
