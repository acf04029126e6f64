"""The study of docs/understand/steps-study.md at a tiny size, and what it rests on."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def steps(load_script):
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as for a script
    try:
        return load_script("benchmarks/steps.py")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def tables(load_script):
    return load_script("benchmarks/step_tables.py")


@pytest.fixture(scope="module")
def burgers(load_script):
    return load_script("benchmarks/burgers.py")


@pytest.fixture
def plan(steps, tmp_path):
    return steps.Plan(tmp_path, seeds=2, trials=3, steps=6)


def test_the_points_of_the_study_are_drawn_apart(burgers):
    task = burgers.Burgers(points=30)
    assert task.counts(task.data().train).tolist() == [30, 30, 30]
    assert [layer.out_features for layer in task.model().hidden] == [20, 20, 20]


@pytest.mark.parametrize("count", [0, 3])
def test_every_search_has_as_many_trials(steps, count):
    for best in (-3.0, 0.0, 2.0):
        tried = []

        def score(setting, best=best, tried=tried):
            tried.append(setting)
            return abs(math.log10(setting.lr) - best)

        found = steps.find_setting(score, 1.0, count, 6)
        assert len(tried) == len(set(tried)) == 6
        assert found in tried
        assert sum(setting.weights is not None for setting in tried) == count


def test_where_every_trial_fails_the_smallest_step_size_is_left(steps):
    tried = []

    def score(setting):
        tried.append(setting.lr)
        return math.inf

    assert steps.find_setting(score, 1.0, 0, 5).lr == 0.0316
    assert tried == [1.0, 3.16, 0.316, 0.1, 0.0316]


def test_the_published_settings_are_those_of_the_archived_trials(steps, published, tmp_path):
    archive = ROOT / "results" / "steps-runs.jsonl.gz"
    plan = steps.Plan(tmp_path, 10, archive)
    store = steps.Store(plan, makes=False)
    newest = [row for row in published["rows"] if "made" not in row and row["method"] != "static"]
    assert newest
    for row in newest:
        names = ("task", "method", "optimizer", "variant")
        found = steps.chosen(store, plan, steps.Combination(**{n: row[n] for n in names}))
        assert [found.lr, found.weights and list(found.weights)] == [row["lr"], row["weights"]]


def test_combinations_leave_out_what_would_be_the_same(steps):
    found = steps.combinations(["toy"], ["sgd", "adam"], ["sum", "upgrad"])
    left_out = {("sum", "metric"), ("upgrad", "metric")}
    assert {(c.method, c.variant) for c in found if c.optimizer == "sgd"}.isdisjoint(left_out)
    assert steps.Combination("toy", "upgrad", "adam", "metric") in found


@pytest.mark.slow
def test_a_tiny_study(steps, tables, plan):
    todo = steps.combinations(["toy"], ["adam", "sgd"], ["mgda"])
    todo += steps.combinations(["burgers"], ["adam"], ["static"])
    for one in todo:
        steps.studied(plan, one)
    steps.cost(steps.Store(plan), "toy", "adam", "mgda")
    found = steps.study(plan)
    assert {(r["task"], r["method"], r["optimizer"], r["variant"]) for r in found["rows"]} == {
        (c.task, c.method, c.optimizer, c.variant) for c in todo
    }
    for row in found["rows"]:
        assert (row["n"], row["diverged"]) == (2, 0)
        assert all(math.isfinite(row[name]) for name in tables.MEANS)
        assert ("difference" in row) == (row["variant"] != "published")
        if row["variant"] == "guarded":
            assert (row["batch step"], row["failed"]) == (0, 0)
    pooled = {(r["task"], r["optimizer"], r["variant"]): r["methods"] for r in found["pooled"]}
    assert pooled["toy", "adam", "metric"] == 1
    assert set(found["costs"][0]["ratios"]) == {"published", "metric", "guarded"}
    json.dumps(found)


def test_a_run_is_made_once(steps, plan, monkeypatch):
    one = steps.Combination("toy", "sum", "adam", "published")
    steps.studied(plan, one)
    (file,) = plan.folder.iterdir()
    lines = [line for line in file.read_text().splitlines() if line]
    assert len(lines) == plan.trials + plan.seeds
    file.write_text("\n".join([*lines[:-1], lines[-1][:20]]))  # stopped while it wrote
    steps.studied(plan, one)
    assert len(steps.Store(plan).known) == len(lines)
    monkeypatch.setattr(steps, "trained", lambda *_: pytest.fail("run again"))
    steps.studied(plan, one)


def test_the_metric_of_sgd_is_the_identity(steps):
    looked = []
    for variant in ("published", "metric"):
        one = steps.Combination("toy", "mgda", "sgd", variant)
        looked.append(steps.trained(one, steps.Setting(0.1), 0, steps.Length(12))["losses"])
    assert looked[0] == pytest.approx(looked[1], rel=1e-9)


def made_up(random, steps, tables, task, optimizer, *, seeds=6, diverging=0.0):
    """Combinations with runs that nobody made."""

    def run():
        if random.random() < diverging:
            return {"diverged": True, "score": math.inf}
        named = {name: random.random() for name in (*tables.MEANS, "batch step, least cosine")}
        return named | {"diverged": False, "losses": {}, "metrics": {}, "outcomes": {"free": 1}}

    combinations = steps.combinations([task], [optimizer], ["sum", "mgda", "modo"])
    setting = {"lr": 0.1, "weights": None, "n": seeds}
    return [
        {**steps.asdict(one), **setting, "runs": [run() for _ in range(seeds)]}
        for one in combinations
    ]


def results(tables, found, created="2026-01-01", **settings):
    rows, pooled = tables.summary(found)
    tasks = {row["task"]: settings or {"steps": 6} for row in found}
    given = {"settings": tasks, "trials": 3, "created": created}
    return {"rows": rows, "pooled": pooled, **given}


def without_p(found):
    rows, pooled = (
        [{name: value for name, value in row.items() if name != "p alone"} for row in found[kind]]
        for kind in ("rows", "pooled")
    )
    return {**found, "rows": rows, "pooled": pooled}


def by_name(tables, found):
    rows = {(*tables.place_of(row), row["variant"]): row.get("p", -1.0) for row in found["rows"]}
    return rows, {tuple(row[n] for n in tables.POOLED): row["p"] for row in found["pooled"]}


@pytest.mark.parametrize("forgotten", [False, True])
def test_joined_results_are_those_of_all_runs(steps, tables, forgotten):
    random = np.random.default_rng(0)
    first = made_up(random, steps, tables, "toy", "adam")
    second = made_up(random, steps, tables, "digits", "adam") + made_up(
        random, steps, tables, "toy", "sgd"
    )
    whole = tables.corrected(results(tables, first + second))
    earlier = tables.corrected(results(tables, first))
    if forgotten:  # as in results that were published before p was kept
        earlier = without_p(earlier)
    found, changed = tables.joined(results(tables, second), earlier)
    assert not changed
    for own, expected in zip(
        by_name(tables, tables.corrected(found)), by_name(tables, whole), strict=True
    ):
        assert own == pytest.approx(expected, rel=1e-9)
    assert any(0 < p < 1 for p in by_name(tables, whole)[0].values())


def test_what_is_joined_is_whole_of_one_sitting(steps, tables):
    random = np.random.default_rng(1)
    few, many = (made_up(random, steps, tables, "toy", "adam", seeds=n) for n in (3, 6))
    for new, earlier, kept in ((few, many, 6), (many, few, 6), (few[:2], few, 3)):
        found, _ = tables.joined(results(tables, new, "now"), results(tables, earlier, "then"))
        assert {row["n"] for row in found["rows"]} == {kept}
        assert len(found["rows"]) == len(earlier)
    sums = {row["variant"] for row in found["rows"] if row["method"] == "sum"}
    assert sums == {"published", "guarded"}
    assert all("made" not in row for row in found["rows"] if row["method"] == "sum")


def test_rows_of_other_settings_are_not_joined(steps, tables):
    random = np.random.default_rng(2)
    old = results(tables, made_up(random, steps, tables, "toy", "adam"), steps=200)
    new = results(tables, made_up(random, steps, tables, "toy", "sgd"), steps=60)
    found, changed = tables.joined(new, old)
    assert changed == ["toy"]
    assert found["rows"] == new["rows"]
    assert found["pooled"] == new["pooled"]
    with pytest.raises(ValueError, match="must have 3 trials a combination, found 6"):
        tables.joined(new, {**old, "trials": 6})


def test_a_recovered_p_is_never_too_small(steps, tables):
    random = np.random.default_rng(3)
    for seeds in (2, 3, 6, 10):
        found = made_up(random, steps, tables, "toy", "adam", seeds=seeds, diverging=0.3)
        rows, _ = tables.summary(found)
        again = tables.with_p(without_p({"rows": rows, "pooled": []})["rows"])
        for row, other in zip(rows, again, strict=True):
            if row.get("p alone") is None:
                assert other.get("p alone") is None
            else:
                assert other["p alone"] >= row["p alone"] * (1 - 1e-9)


def test_an_archive_stands_for_the_runs(steps, tables, plan, tmp_path, monkeypatch):
    for one in steps.combinations(["toy"], ["adam"], ["sum"]):
        steps.studied(plan, one)
    archive = tmp_path / "runs.jsonl.gz"
    steps.Store(plan).pack(archive)
    elsewhere = steps.replace(plan, folder=tmp_path / "elsewhere", archive=archive)
    monkeypatch.setattr(steps, "trained", lambda *_: pytest.fail("run again"))
    steps.studied(elsewhere, steps.Combination("toy", "sum", "adam", "guarded"))
    here, there = (steps.study(p)["rows"] for p in (plan, elsewhere))
    assert [row["lr"] for row in here] == [row["lr"] for row in there]
    for name in (*tables.MEANS, "difference", "difference_ci"):
        own, other = ([row.get(name, 0.0) for row in rows] for rows in (here, there))
        assert own == pytest.approx(other, rel=1e-6, abs=1e-12)


def test_a_narrow_network_learns(steps):
    one = steps.Combination("scenes", "sum", "adam", "guarded")
    short, long = (
        steps.trained(one, steps.Setting(3e-3), 0, steps.Length(count)) for count in (1, 30)
    )
    assert long["score"] < short["score"] - 0.1
    assert (long["batch step"], long["outcomes"].get("failed", 0)) == (0, 0)


@pytest.fixture(scope="module")
def published():
    return json.loads((ROOT / "results" / "steps.json").read_text(encoding="utf-8"))


def test_published_results_are_corrected_as_one_family(tables, published):
    again = tables.corrected(published)
    for kind in ("rows", "pooled"):
        own, other = ([row.get("p") or -1.0 for row in found[kind]] for found in (published, again))
        assert own == pytest.approx(other, rel=1e-9)


def test_the_archive_holds_the_runs_of_the_newest_rows(steps, tables, published, tmp_path):
    archive = ROOT / "results" / "steps-runs.jsonl.gz"
    store = steps.Store(steps.Plan(tmp_path, 10, archive), makes=False)
    newest = [row for row in published["rows"] if "made" not in row]
    assert newest
    for row in newest:
        names = ("task", "method", "optimizer", "variant")
        one = steps.Combination(**{name: row[name] for name in names})
        weights = None if row["weights"] is None else tuple(row["weights"])
        plan, setting = steps.Plan(tmp_path, row["n"]), steps.Setting(row["lr"], weights)
        runs = [steps.run(store, plan, one, setting, seed) for seed in range(row["n"])]
        ended = [found["score"] for found in runs if not found["diverged"]]
        assert len(runs) - len(ended) == row["diverged"]
        if ended:
            assert row["score"] == pytest.approx(np.mean(ended), rel=1e-5)


def test_the_picture_shows_the_results(load_script, published):
    drawn = load_script("docs/step_conflicts.py")
    assert drawn.PICTURE.read_text(encoding="utf-8") == drawn.picture(published)
    common = {"task": "toy", "optimizer": "adam", "variant": "metric"}
    rows = [{**common, "batch step": share} for share in (0.25, 0.75, None)]
    assert drawn.shares({"rows": rows}) == [("toy", "adam", "metric", 25.0, 50.0, 75.0)]
