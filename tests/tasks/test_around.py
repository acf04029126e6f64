"""Tasks around another task: a population of its models, and one that is told a preference."""

from pathlib import Path

import pytest
import torch
from torch import nn

from trimol.cli import main
from trimol.maths.fronts import hypervolume
from trimol.runs.config import configure
from trimol.tasks import TaskError, load
from trimol.tasks.conditioned import Conditioned
from trimol.tasks.population import Population
from trimol.training import start, train
from trimol.training._checkpoint import restore, state

# Two losses of one number w: w² and (w − 3)². The best for weights r is w = 3 r₂.
PAIR = """
import torch
from torch import nn
from trimol.tasks import Data, Task


class Pair(Task):
    name, objectives = "pair", ("low", "high")
    goals = {"low": {"size": "lower"}}

    def __init__(self, *, far: float = 3.0):
        self.far = far

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        w = model(batch[0])
        return [w.square().mean(), (w - self.far).square().mean()]

    def metrics(self, model, batch):
        return {"size": model(batch[0]).abs().mean()}

    def data(self):
        ones = torch.ones(40, 1)
        return Data(train=(ones,), test=(ones[:8],))
"""


@pytest.fixture
def pair(tmp_path: Path) -> str:
    (tmp_path / "pair.py").write_text(PAIR)
    return f"{tmp_path / 'pair.py'}:Pair"


def test_a_population_has_every_models_losses_metrics_and_goals(pair: str) -> None:
    task = Population(of=pair, points=3, far=2.0)
    model, batch = task.model(), task.data().test
    assert task.objectives[:3] == ("low (1)", "high (1)", "low (2)")
    losses = task.losses(model, batch)
    for k, member in enumerate(model):
        assert losses[2 * k : 2 * k + 2].tolist() == [
            loss.item() for loss in task.inner.losses(member, batch)
        ]
    with torch.no_grad():
        metrics = task.conclude(task.tally(model, batch))
    assert metrics == pytest.approx({n: v.item() for n, v in task.metrics(model, batch).items()})
    assert list(metrics) == ["size (1)", "size (2)", "size (3)"]
    assert task.goals["low (2)"] == {"size (2)": "lower"}
    assert len(set(losses.tolist())) == 6  # every model has its own start
    assert len(list(task.shared(model))) == 6


def test_a_population_tells_its_size_to_methods_that_take_it() -> None:
    task = Population(of="digits", points=4)
    told = {name for name in task.settings if "points" in task.settings[name].method}
    assert told == {"hvgrad"}
    assert task.settings["hvgrad"].method["points"] == 4
    assert task.settings["hvgrad"].lr == task.inner.settings["hvgrad"].lr
    assert task.settings["mgda"] == task.inner.settings["mgda"]


def test_a_population_spreads_over_the_front(pair: str) -> None:
    task = Population(of=pair, points=4)
    options = {"points": 4, "reference_point": [9.5, 9.5]}
    run = start(task, "hvgrad", lr=0.3, batch_size=8, seed=0, hyperparameters=options)
    train(run, 400)
    found = task.losses(run.model, task.data().test).detach().reshape(4, 2)
    even = torch.linspace(0, 3, 6)[1:-1]
    spread = torch.stack([even**2, (even - 3) ** 2], 1)
    assert hypervolume(found, [9.5, 9.5]) > hypervolume(spread, [9.5, 9.5])


@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_one_conditioned_model_is_right_for_every_preference(pair: str, penalty: float) -> None:
    task = Conditioned(of=pair, penalty=penalty)
    schedule = 600
    run = start(
        task, "static", lr=0.05, batch_size=8, seed=0, schedule=lambda step: 1 - step / schedule
    )
    train(run, schedule)
    shares = torch.tensor([0.2, 0.5, 0.8])
    preferences = torch.stack([1 - shares, shares], 1)
    found = task.losses_along(run.model.eval(), task.data().test, preferences)
    best = 3 * shares
    weighted = torch.stack([best**2, (best - 3) ** 2], 1)
    if not penalty:
        torch.testing.assert_close(found, weighted, rtol=0, atol=0.25)
        return
    # Nearer to the ray f ∝ 1/r than the best of the weighted sum.
    ray = 1 / preferences
    near, far = (torch.cosine_similarity(f, ray, dim=1).mean() for f in (found, weighted))
    assert near > far


def test_the_mean_of_a_conditioned_batch_is_the_weighted_sum(pair: str) -> None:
    task = Conditioned(of=pair)
    model, batch = task.model(), task.data().train
    torch.manual_seed(3)
    r = torch.distributions.Dirichlet(torch.ones(2)).sample()
    plain = task.losses_at(model, batch, r)
    torch.manual_seed(3)
    torch.testing.assert_close(task.losses(model.train(), batch).mean(), r @ plain)


def test_a_conditioned_model_changes_nothing_at_the_start_and_listens_later() -> None:
    task = Conditioned(of="digits", hidden=8)
    model, batch = task.model(), task.data().test
    corners = [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]]
    first, second = task.losses_along(model, batch, corners)
    assert torch.equal(first, second)
    with torch.no_grad():
        model.told.weight.normal_()
    first, second = task.losses_along(model, batch, corners)
    assert not torch.equal(first, second)
    assert torch.equal(task.losses(model.eval(), batch), task.losses(model.eval(), batch))


class Trunked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(x).relu())


TRUNKED = """
from test_around import Trunked
import torch
from trimol.tasks import Data, Task


class Two(Task):
    name, objectives = "two", ("a", "b")

    def model(self):
        return Trunked()

    def losses(self, model, batch):
        return model(batch[0]).square().mean(0)

    def data(self):
        x = torch.linspace(-1, 1, 30).reshape(10, 3)
        return Data(train=(x,), test=(x,))

    def representation(self, model):
        return model.trunk
"""


def test_features_are_told_by_a_gain_and_a_shift(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TRUNKED)
    task = Conditioned(of=f"{tmp_path / 'two.py'}", told="features")
    model, (x,) = task.model(), task.data().test
    assert model.told.weight.shape == (10, 2)
    with torch.no_grad():
        model.told.weight.normal_()
    r = torch.tensor([0.7, 0.3])
    gain, shift = (model.told.weight @ (r - 0.5)).chunk(2)
    h = model.inner.trunk
    by_hand = model.inner.head(((x @ h.weight.T + h.bias) * (1 + gain) + shift).relu())
    torch.testing.assert_close(task.losses_at(model, (x,), r), by_hand.square().mean(0))


@pytest.mark.parametrize("of", ["digits", "pair"])
@pytest.mark.parametrize(
    ("task", "method"),
    [("population", "hvgrad"), ("conditioned", "static"), ("conditioned", "modo")],
)
def test_runs_resume_bit_for_bit(
    tmp_path: Path, pair: str, of: str, task: str, method: str
) -> None:
    def new(seed: int = 0):
        made = load(task, {"of": "digits", "hidden": 8} if of == "digits" else {"of": pair})
        own = made.settings.get(method)
        given = {} if own is None else dict(own.method)
        return start(made, method, lr=0.05, batch_size=8, seed=seed, hyperparameters=given)

    whole, half = train(new(), 8), train(new(), 4)
    torch.save(state(half), tmp_path / "checkpoint.pt")
    rest = new(seed=1)
    restore(rest, torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    train(rest, 4)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], tensor), name


def test_the_commands_that_a_user_types(tmp_path: Path, pair: str, capsys) -> None:
    common = ["--steps", "5", "--batch-size", "8", "--quiet"]
    for task, more in (("population", ["--method", "hvgrad"]), ("conditioned", [])):
        out = tmp_path / task
        options = ["--option", f"of={pair}", "--option", "far=2"]
        assert main(["run", task, *options, *more, *common, "--out", str(out)]) == 0
        assert (out / "model.pt").exists()
    capsys.readouterr()
    assert main(["run", "population", "--option", "of=digits", "--option", "width=3"]) == 2
    assert "has no option 'width': it has of, points, hidden" in capsys.readouterr().err
    assert main(["tasks"]) == 0
    assert "those of another task" in capsys.readouterr().out


def test_the_file_of_the_task_inside_decides_a_run(tmp_path: Path, pair: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pair.py").write_text(PAIR)
    other = f"{tmp_path / 'elsewhere' / 'pair.py'}:Pair"
    one, same = (
        configure("population", "static", steps=1, task_options={"of": of}) for of in (pair, other)
    )
    assert one.key == same.key
    Path(pair.partition(":")[0]).write_text(PAIR + "\n# changed\n")
    assert configure("population", "static", steps=1, task_options={"of": pair}).key != one.key


def test_bad_options(pair: str) -> None:
    with pytest.raises(ValueError, match="points must be a whole number of at least 1, found 0"):
        Population(of=pair, points=0)
    with pytest.raises(TaskError, match="Pair has no option 'near': it has far"):
        Population(of=pair, near=1)
    with pytest.raises(ValueError, match="told must be 'input' or 'features', found 'labels'"):
        Conditioned(of=pair, told="labels")
    with pytest.raises(ValueError, match="names no representation, found 'features'"):
        Conditioned(of=pair, told="features").model()
    with pytest.raises(ValueError, match="prefer must sum to 1"):
        Conditioned(of=pair, prefer=[1.0, 1.0])
    with pytest.raises(ValueError, match="penalty must be a finite number of at least 0"):
        Conditioned(of=pair, penalty=-1.0)


@pytest.mark.parametrize("task", ["population", "conditioned"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise KeyError('lost')", "pair.py, line {}: KeyError: 'lost'"),
        ("return [w.square().mean()]", "losses() of Pair must return 2 losses"),
    ],
)
def test_what_the_task_inside_does_wrong_is_one_line_with_its_file(
    tmp_path: Path, capsys, task: str, line: str, said: str
) -> None:
    start = "        w = model(batch[0])\n"
    text = PAIR.replace(start, f"{start}        {line}\n")
    (tmp_path / "pair.py").write_text(text)
    options = ["--option", f"of={tmp_path / 'pair.py'}", "--steps", "2", "--quiet"]
    assert main(["run", task, *options, "--batch-size", "8", "--out", str(tmp_path / "run")]) != 0
    (told,) = capsys.readouterr().err.splitlines()
    assert said.format(text.splitlines().index(f"        {line}") + 1) in told
