"""A setting: a method with its learning rate, schedule and hyper-parameters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimol import methods
from trimol.training.loop import Schedule

_MANY = 5  # equal weights are counted, not listed
_DIGITS = 4  # of every number that a search proposes: what people type


@dataclass(frozen=True)
class Setting:
    """A method with its learning rate, schedule and hyper-parameters.

    Attributes:
        method: The method's name.
        lr: The learning rate.
        hyperparameters: The method's, by name.
        schedule: How the learning rate falls to 0 over the steps; None for a constant one.
        task_options: Options of the task that go with it, such as ``weight_decay``.
    """

    method: str
    lr: float
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None = None
    task_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The static weights; None where the setting has none."""
        given = self.hyperparameters.get("weights")
        return None if given is None else tuple(given)

    @property
    def key(self) -> str:
        """Name the setting by its content."""
        own = [self.method, self.lr, dict(self.hyperparameters), self.schedule]
        if self.task_options:
            own.append(dict(self.task_options))
        return json.dumps(own, sort_keys=True)

    @property
    def values(self) -> dict[str, Any]:
        """The learning rate, hyper-parameters and task options, by name."""
        return {"lr": self.lr, **self.hyperparameters, **self.task_options}

    def with_value(self, name: str, value: float) -> "Setting":
        """Return the setting with another value of one of its `values`.

        >>> Setting("modo", 0.1, {"gamma": 1.0}).with_value("gamma", 2.0).values
        {'lr': 0.1, 'gamma': 2.0}
        """
        if name == "lr":
            return replace(self, lr=value)
        if name in self.hyperparameters:
            return replace(self, hyperparameters={**self.hyperparameters, name: value})
        return replace(self, task_options={**self.task_options, name: value})

    def command(self, task: str) -> str:
        """Return the command that trains a task with this setting.

        >>> Setting("static", 0.3, {"weights": [0.7, 0.3]}).command("digits")
        'trimol run digits --method static --lr 0.3 --weights 0.7,0.3'
        """
        flags = self.values
        if self.schedule is not None:
            flags["schedule"] = self.schedule
        typed = [f"--{name.replace('_', '-')} {_flag(value)}" for name, value in flags.items()]
        return " ".join(["trimol run", task, f"--method {self.method}", *typed])

    def code(self, objectives: int) -> str:
        """Return the Python code that makes the method with this setting.

        >>> print(Setting("static", 0.3, {"weights": [0.7, 0.3]}).code(2))
        trimol.Static(model.parameters(), objectives=2, weights=[0.7, 0.3])  # learning rate 0.3
        """
        own = {"objectives": objectives, **self.hyperparameters}
        given = ", ".join(f"{name}={value!r}" for name, value in own.items())
        kind = methods.get(self.method).__name__
        decay = f" with {self.schedule} decay" if self.schedule else ""
        return f"trimol.{kind}(model.parameters(), {given})  # learning rate {self.lr:g}{decay}"

    @property
    def description(self) -> str:
        """Describe the setting in words, without the method."""
        named = {**self.hyperparameters, **self.task_options}
        own = [f"{name} {_value(value)}" for name, value in named.items()]
        decay = f" with {self.schedule} decay" if self.schedule else ""
        return ", ".join([*own, f"learning rate {self.lr:g}{decay}"])

    def __str__(self) -> str:
        """Describe the setting in words.

        >>> print(Setting("static", 0.3, {"weights": [0.7, 0.3]}, "linear"))
        static, weights (0.7, 0.3), learning rate 0.3 with linear decay
        """
        return f"{self.method}, {self.description}"


def rounded(value: float) -> float:
    """Round to as many digits as people type.

    >>> rounded(0.1234567)
    0.1235
    """
    return float(f"{value:.{_DIGITS}g}")


def normalised(weights: Sequence[float]) -> list[float]:
    """Scale weights so that they sum to one, in few digits.

    >>> normalised([3, 1, 0.001])
    [0.7498, 0.2499, 0.0002499]
    """
    total = sum(weights)
    return [rounded(weight / total) for weight in weights]


def _flag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(f"{each:g}" for each in value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"'{text}'" if " " in text else text


def _value(value: Any) -> str:
    """Describe a value; many equal weights in few words.

    >>> _value([0.25, 0.75]), _value([1 / 11] * 11)
    ('(0.25, 0.75)', '(11 times 0.0909)')
    """
    if isinstance(value, list | tuple):
        each = [f"{item:.3g}" for item in value]
        alike = len(each) > _MANY and len(set(each)) == 1
        return f"({len(each)} times {each[0]})" if alike else f"({', '.join(each)})"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
