"""Adult, COMPAS, German, Credit: small files in their layout, and the real ones where they are."""

from pathlib import Path

import numpy as np
import pytest
import torch

from trimol import tasks
from trimol._failures import UserError
from trimol.data._files.datasets import MissingData
from trimol.tasks.fairness import people
from trimol.tasks.fairness.people import ADULT, GERMAN, Adult, Compas, Credit, German, People
from trimol.training import assess, start, train
from trimol.training.assessment import mean_losses, metrics, scored

NAMES = ("adult", "compas", "german", "credit")


def adult_line(random: np.random.Generator, ending: str = "") -> str:
    woman = random.random() < 0.4
    rich = random.random() < (0.2 if woman else 0.5)
    entries = dict.fromkeys(ADULT, "0") | {
        "age": str(random.integers(20, 70)),
        "workclass": random.choice(["Private", "?"]),
        "education": random.choice(["HS-grad", "Masters"] if not rich else ["Masters"]),
        "sex": "Female" if woman else "Male",
        "race": random.choice(["White", "Black"]),
        "relationship": random.choice(["Wife", "Own-child"]) if woman else "Husband",
        "income": f"{'>50K' if rich else '<=50K'}{ending}",
    }
    return ", ".join(str(entries[name]) for name in ADULT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All four, small."""
    random = np.random.default_rng(0)
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    home = tmp_path / "tabular"
    for name in NAMES:
        (home / name).mkdir(parents=True)
    lines = [adult_line(random) for _ in range(300)]
    (home / "adult" / "adult.data").write_text("\n".join([*lines, "", ""]))
    lines = [adult_line(random, ".") for _ in range(100)]
    (home / "adult" / "adult.test").write_text("\n".join(["|1x3 Cross validator", *lines, ""]))
    columns = (
        "age,sex,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,c_charge_degree,"
        "days_b_screening_arrest,is_recid,score_text,two_year_recid"
    )
    rows = [
        f"{20 + i % 40},{['Male', 'Female'][i % 3 == 0]},{['African-American', 'Other'][i % 2]},"
        f"0,0,0,{i % 7},{'FM'[i % 2]},{['-1', '', '40', '30'][i % 4]},{i % 2},Low,{i % 5 // 3}"
        for i in range(200)
    ]
    (home / "compas" / "compas-scores-two-years.csv").write_text("\n".join([columns, *rows]))
    made = []
    for i in range(100):
        entries = dict.fromkeys(GERMAN, str(i % 9)) | {
            "sex": f"A9{1 + i % 5}", "age": str(20 + i % 30), "risk": str(1 + (i % 7 > 4)),
        }  # fmt: skip
        made.append(" ".join(entries[name] for name in GERMAN))
    (home / "german" / "german.data").write_text("\n".join(made))
    inputs = Credit().inputs()
    header = ["ID", *inputs[0], *inputs[1], "SEX", "default.payment.next.month"]
    body = [[str(i % (n + 2)) for n in range(len(header) - 2)] for i in range(100)]
    rows = [",".join([*row, str(1 + i % 2), str(i % 3 // 2)]) for i, row in enumerate(body)]
    (home / "credit" / "credit.csv").write_text("\n".join([",".join(header), *rows]))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_each_is_split_encoded_and_trained(folder: Path, name: str) -> None:
    task = tasks.load(name)
    data = task.data()
    sizes = [len(part[0]) for part in (data.train, data.validation, data.test)]
    assert sizes == [round(sum(sizes) * share) for share in (0.7, 0.1, 0.2)]
    assert all(set(t.tolist()) == {0, 1} for part in (data.train, data.test) for t in part[1:])
    x = data.train[0]
    assert x.mean(0).abs().max() < 1e-5
    varies = x.std(0) > 0
    torch.testing.assert_close(x.std(0, correction=0)[varies], torch.ones(int(varies.sum())))
    before = mean_losses(task, torch.nn.Sequential(task.model()), data.train)
    run = train(start(task, "static", lr=0.01, batch_size=32), steps=30)
    assert sum(mean_losses(task, run.model, data.train).values()) < sum(before.values())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_measured_is_in_goals_and_has_an_interval(folder: Path, name: str) -> None:
    task = tasks.load(name, {"fairness": "parity"})
    found = metrics(task, task.model(), task.data().train)
    assert {m for own in task.goals.values() for m in own} < set(found)
    assert found["hard gap low"] <= found["hard gap"] <= found["hard gap high"]


def test_the_test_rows_change_nothing_about_the_training_rows(folder: Path) -> None:
    """Statistics of all rows would be leakage: other test rows must not move a training input."""
    before = Adult(split="official").data()
    file = folder / "tabular" / "adult" / "adult.test"
    lines = file.read_text().splitlines()
    _age, rest = lines[1].split(",", 1)
    file.write_text("\n".join([lines[0], f"99999,{rest}", *lines[2:]]))
    people._encoded.cache_clear()
    after = Adult(split="official").data()
    assert torch.equal(before.train[0], after.train[0])
    assert torch.equal(before.validation[0], after.validation[0])
    assert not torch.equal(before.test[0], after.test[0])
    assert torch.equal(before.test[0][1:], after.test[0][1:])


def test_the_group_is_not_among_the_inputs(folder: Path) -> None:
    file = folder / "tabular" / "adult" / "adult.data"
    before = Adult(split="official").data().train
    swap = {"Male": "Female", "Female": "Male"}
    changed = [
        ", ".join(swap.get(entry, entry) for entry in line.split(", "))
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(changed))
    people._encoded.cache_clear()
    after = Adult(split="official").data().train
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[2], 1 - after[2])


def test_compas_keeps_the_rows_of_propublica(folder: Path) -> None:
    rows = Compas().table()
    assert len(rows["age"]) == 100  # of 200: 50 have no day, 50 one too far away
    assert set(rows["days_b_screening_arrest"]) == {"-1", "30"}


def test_labels_are_what_is_good_for_the_person(folder: Path) -> None:
    rows = German().table()
    label, women = German().told(rows)
    assert ((rows["risk"] == "1") == (label == 1).numpy()).all()
    assert (np.isin(rows["sex"], ["A92", "A95"]) == (women == 1).numpy()).all()
    assert German(group="age").told(rows)[1].sum() == sum(int(a) <= 25 for a in rows["age"])
    assert "age" not in German(group="age").inputs()[0]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Adult, {"fairness": "fair"}, "fairness must be 'parity' or .* found 'fair'"),
        (Adult, {"group": "age"}, "group must be 'sex' or 'race', found 'age'"),
        (Credit, {"split": "official"}, "split must be 'random', found 'official'"),
        (Adult, {"relaxation": "sums", "sharpness": 2.0}, "sharpness must be 1 where"),
        (Adult, {"sharpness": 0.0}, "sharpness must be"),
    ],
)
def test_bad_options(kind: type[People], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingData, match="trimol data get german"):
        German().data()


def test_every_run_may_have_its_own_split(folder: Path) -> None:
    task = Adult(seed=None)
    assert not torch.equal(task.data_for(1).train[1], task.data_for(2).train[1])
    assert torch.equal(task.data_for(1).train[0], Adult(seed=1).data().train[0])


def test_batches_without_a_group_leave_the_gap_alone(folder: Path) -> None:
    """With batches of two rows most lack women whose label is yes: the run goes on, λ is kept."""
    run = train(start(Adult(), "mgda", lr=0.01, batch_size=2), steps=20)
    assert int(run.method.kept) > 5
    assert all(p.isfinite().all() for p in run.model.parameters())


def test_a_bound_is_kept_on_training_data(folder: Path) -> None:
    """The unbounded classifier of these rows has a gap far above the bound."""
    task = Adult(fairness="parity", hidden=16)
    data = task.data()
    rows = len(data.train[0])
    own = {"prefer": [1.0, 0.0], "kappa": 30.0}
    free, held = (
        train(start(task, "preference", lr=0.01, batch_size=rows, hyperparameters=more), steps=120)
        for more in ({"prefer": [1.0, 0.0]}, own | {"bounds": {"gap": 0.02}})
    )
    loose, tight = (mean_losses(task, run.model, data.train)["gap"] for run in (free, held))
    assert loose > 0.15
    assert tight < 0.04


def test_a_measurement_is_of_all_rows_at_once(folder: Path) -> None:
    task = Adult()
    model = task.model()
    x, label, group = task.data().train
    losses, _ = scored(task, model, (x, label, group))
    assert losses["gap"] == pytest.approx(task.gap(model(x), label, group).item(), abs=1e-6)
    found = assess(start(task, "static")).errors.losses
    assert found[1] == pytest.approx(losses["gap"], abs=1e-6)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "good", "worse"),
    [
        ("adult", 48842, 0.2393, 0.3315),
        ("compas", 6172, 0.5449, 0.8097),
        ("german", 1000, 0.7, 0.31),
        ("credit", 30000, 0.7788, 0.3963),
    ],
)
def test_the_real_files_have_the_rows_that_are_published(
    name: str, rows: int, good: float, worse: float
) -> None:
    task = tasks.load(name)
    table = task.table()
    label, group = task.told(table)
    assert len(label) == rows
    assert label.double().mean().item() == pytest.approx(good, abs=1e-4)
    assert group.double().mean().item() == pytest.approx(worse, abs=1e-4)


OWN = """
import torch
from trimol.tasks import Data
from trimol.tasks.fairness.fair import Fair, network

class Own(Fair):
    name = "own"

    def model(self):
        return network(width={width}, hidden=4)

    def data(self):
        x, group = torch.randn(40, 3), torch.arange(40) % 2
        columns = {columns}
        return Data(train=columns, test=columns)
"""


@pytest.mark.parametrize(
    ("width", "columns", "said"),
    [
        (3, "(x, group)", r"^data\(\) must give columns \(x, label, group\), found 2"),
        (3, "(x, group, 2 * group)", "^group must be 0 or 1 in every row of data.*, found 2$"),
        (3, "(x, group - 1, group)", "^label must be 0 or 1 in every row of data.*, found -1$"),
        (2, "(x, group, group)", r"own.py: losses\(\) of Own failed on .*shapes cannot be multip"),
    ],
)
def test_mistakes_in_a_table_of_ones_own_are_one_line(
    tmp_path: Path, width: int, columns: str, said: str
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN.format(width=width, columns=columns), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        train(start(tasks.load(f"{file}"), "static", batch_size=20), steps=1)
