"""Successive halving: who continues, by hand, and what a study makes of it."""

from collections import Counter

from trimol.search import (
    BudgetStudy,
    FunctionProblem,
    GridSampler,
    Halving,
    Setting,
    Trial,
    TrialState,
)


def rank(points: list[dict[str, float]]) -> list[float]:
    return [-point["loss"] for point in points]


def reach(losses: dict[str, list[float]]) -> list[Trial]:
    return [
        Trial(number, Setting(method, 0.1), TrialState.COMPLETE, {0: {"loss": loss}})
        for method, own in losses.items()
        for number, loss in enumerate(own)
    ]


def test_the_best_third_of_each_method_so_far_continues() -> None:
    halving = Halving(rank)

    def choose(rung: int = 9, **losses: list[float]) -> list[tuple[str, int]]:
        chosen = halving.choose(reach(losses), rung)
        return [(trial.setting.method, trial.number) for trial in chosen]

    assert choose(static=[3.0, 1.0, 2.0, 2.5, 1.5, 4.0], modo=[9.0]) == [
        ("static", 1),
        ("static", 4),
        ("modo", 0),
    ]
    # Of nine that static has by now, three continue; earlier ones are rivals.
    assert choose(static=[1.4, 1.9, 0.5]) == [("static", 0), ("static", 2)]
    assert choose(static=[7.0]) == []
    assert choose(rung=3, static=[7.0]) == [("static", 0)]  # the first at another rung
    assert choose() == []


def test_a_study_trains_short_ones_first_and_whole_ones_of_the_best() -> None:
    shares: Counter[float] = Counter()

    def train(setting: Setting, seed: int, budget: float) -> dict[str, float]:
        shares[budget] += 1
        diverges = setting.lr == 9.0 or (setting.lr == 1.0 and budget == 1 and seed == 1)
        return {"loss": float("nan") if diverges else abs(setting.lr - 1.0) + seed}

    sampler = GridSampler([Setting("static", float(lr)) for lr in range(10)])
    problem = FunctionProblem(train, ["loss"], lr=0.1)
    study = BudgetStudy(problem, {"static": sampler}, 60, seeds=(0, 1), pruner=Halving(rank))
    study.round({"static": 10})
    trials = study.trials["static"]
    assert shares == {1 / 9: 20, 1 / 3: 6, 1: 2}  # three of nine, one of three
    assert study.spent == 7  # 20 ninths, 6 thirds and 2 whole ones, rounded up
    assert [trial.state.value for trial in trials] == [
        "pruned",
        "failed",
        *["pruned"] * 7,
        "failed",
    ]
    assert trials[0].note == "pruned after 1/3 of the steps"
    assert trials[5].note == "pruned after 1/9 of the steps"
    assert trials[9].note == "loss became NaN or infinite"
    assert all(not trial.points for trial in trials if trial.state is TrialState.PRUNED)
