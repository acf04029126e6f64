"""What to try next: all points of a grid, or what Optuna proposes from what was found so far.

A search by Optuna is played again from its start whenever it goes on: its sampler is seeded and is
told the same results in the same order, so it asks for the same trials. Runs that are on disk are
not run again, and so a search that was killed goes on as if it had not been. Its journal file is
for people: finished trials are added to it, and none of them decides anything. What it begins with,
the plan of the search, does: behind all that is added stands the digest of what is before.
"""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from trimol import _digests as digests
from trimol._extras import require
from trimol._files import growing, read
from trimol.runs import _spaces as spaces
from trimol.runs._spaces import Point, Spaces
from trimol.runs._storage import Damaged, StoreError

JOURNAL = "optuna.journal"
Values = Sequence[float] | None  # of a trial's goals; None if it diverged or was pruned


class Proposals(Protocol):
    """Where the trials of a method come from."""

    def ask(self, count: int) -> list[Point]:
        """The next points, at most so many; none if there are no more."""

    def tell(self, found: Sequence[Values], notes: Sequence[Mapping[str, Any]]) -> None:
        """What became of the points that were asked for last, in their order."""


class Grid:
    """Every point once, in the order of the grid."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.left = list(points)

    def ask(self, count: int) -> list[Point]:
        """The next points."""
        asked, self.left = self.left[:count], self.left[count:]
        return asked

    def tell(self, found: Sequence[Values], notes: Sequence[Mapping[str, Any]]) -> None:
        """A grid learns nothing."""


class Sampled:
    """What a sampler of Optuna proposes, so many trials in all.

    Args:
        name: Of the search, in the journal.
        search: ``"tpe"`` or ``"random"``.
        own: What may be tried, by setting.
        objectives: The names of the task's objectives.
        goals: Their names, and whether ``"higher"`` or ``"lower"`` is better.
        trials: How many.
        seed: Decides the proposals, with the name.
        journal: Where finished trials are noted down.
    """

    def __init__(
        self,
        name: str,
        search: str,
        own: Spaces,
        objectives: Sequence[str],
        goals: Mapping[str, str],
        *,
        trials: int,
        seed: int,
        journal: "TrialJournal",
    ) -> None:
        optuna = needed()
        self.own, self.objectives, self.left = own, objectives, trials
        self.name, self.journal = name, journal
        self.asked: list[Any] = []
        with quiet():
            samplers = optuna.samplers
            made = samplers.TPESampler if search == "tpe" else samplers.RandomSampler
            more = {"constant_liar": True} if search == "tpe" else {}
            sampler = made(seed=_seed(seed, name), **more)
            self.study = optuna.create_study(directions=directions(goals.values()), sampler=sampler)

    def ask(self, count: int) -> list[Point]:
        """The next points."""
        count = min(count, self.left)
        self.left -= count
        with quiet():
            self.asked = [self.study.ask() for _ in range(count)]
            return [
                {
                    name: spaces.suggest(trial, name, space, self.objectives)
                    for name, space in self.own.items()
                }
                for trial in self.asked
            ]

    def tell(self, found: Sequence[Values], notes: Sequence[Mapping[str, Any]]) -> None:
        """Tell the sampler, and note the trials down."""
        # What diverged counts as pruned: to the sampler, worse than all that came to an end.
        pruned = needed().trial.TrialState.PRUNED
        with quiet():
            for trial, values, own in zip(self.asked, found, notes, strict=True):
                for name, note in own.items():
                    trial.set_user_attr(name, note)
                if values is None:
                    self.study.tell(trial, state=pruned)
                else:
                    self.study.tell(trial, list(values))
            self.journal.add(self.name, [self.study.trials[trial.number] for trial in self.asked])


class TrialJournal:
    """Finished trials in Optuna's journal file, which ``optuna-dashboard`` opens."""

    def __init__(self, file: Path) -> None:
        optuna = needed()
        self.file, self.studies = file, dict[str, Any]()
        try:
            _mend(file)
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error.strerror}") from error
        with self._understood():
            backend = optuna.storages.journal.JournalFileBackend(str(file))
            self.storage = optuna.storages.JournalStorage(backend)

    def plan(self, name: str) -> dict[str, Any]:
        """What a search that was begun is; empty if it was not."""
        with self._understood():
            summaries = needed().get_all_study_summaries(self.storage)
        known = {own.study_name: own.user_attrs for own in summaries}
        found: dict[str, Any] = known.get(name, {}).get("plan", {})
        return found

    def open(self, name: str, plan: Mapping[str, Any], goals: Mapping[str, str]) -> None:
        """Begin the journal of a search, or go on with it: it must be of the same search."""
        before, now = self.plan(name), json.loads(json.dumps(dict(plan)))
        if before and before != now:
            changed = [key for key in now if before.get(key) != now[key]]
            raise StoreError(
                f"{self.file} is of another search ({', '.join(changed)} differ): choose another "
                "folder"
            )
        with self._understood():
            self.studies[name] = study = needed().create_study(
                storage=self.storage,
                study_name=name,
                directions=directions(goals.values()),
                load_if_exists=True,
            )
            if not before:
                study.set_metric_names(list(goals))
                study.set_user_attr("plan", now)
                self._seal(study)

    def add(self, name: str, trials: Sequence[Any]) -> None:
        """Note those trials down that are not there."""
        study = self.studies[name]
        with self._understood():
            there = len(study.get_trials(deepcopy=False))
            new = [trial for trial in trials if trial.number >= there]
            study.add_trials(new)
            if new:
                self._seal(study)

    def _seal(self, study: Any) -> None:
        """Add the digest of all that is there."""
        digest = hashlib.sha256(read(self.file)).hexdigest()
        study.set_user_attr(digests.KEY, f"{digests.MARK.decode()}{digest}")

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Name the file where Optuna fails at it, which it does in many ways."""
        try:
            with quiet():
                yield
        except (StoreError, OSError):
            raise
        except Exception as error:
            raise _damaged(self.file) from error


def directions(ways: Iterable[str]) -> list[str]:
    """What Optuna calls that higher or lower is better."""
    return ["maximize" if way == "higher" else "minimize" for way in ways]


def needed() -> Any:
    """Optuna, which the extra ``sweep`` installs."""
    return require("optuna", extra="sweep", purpose="a search by random or tpe")


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna says what it does on stderr, and that some of it is new: not to our users."""
    logging = needed().logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def _seed(seed: int, name: str) -> int:
    """Another one for each method, the same every time."""
    return int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest()[:8], 16)


def _mend(file: Path) -> None:
    """Take away what a kill may have left: half a line, and the lock of a writer that is gone.

    Optuna takes half a line for damage, and waits for that lock, for ever where the path is
    relative. Nobody else writes: the search's folder is locked by us.

    Raises:
        Damaged: The rest is not as it was written.
    """
    Path(f"{file}.lock").unlink(missing_ok=True)
    with growing(file, keep=True) as own:
        content = read(file)
        lines = content[: content.rfind(b"\n") + 1]
        sealed = lines[: lines.rfind(b"\n", 0, lines.rfind(digests.MARK)) + 1]
        found = digests.written(lines)
        if found is not None and found != hashlib.sha256(sealed).hexdigest():
            raise _damaged(file)
        own.truncate(len(lines))


def _damaged(file: Path) -> Damaged:
    return Damaged(f"{file} is damaged or not ours: no journal of a search as it was written")
