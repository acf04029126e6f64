"""Settings over seeds as tables."""

from pathlib import Path

from trimol.runs._over_seeds import at_end, run_over_seeds, table_of
from trimol.runs.config import configure


def test_readings_are_there_however_many_rows_have_none(tmp_path: Path) -> None:
    """Only at the end of 105 measurements were the vectors of E_ca kept."""
    options = {"hidden": 2}
    config = configure(
        "digits", "static", lr=0.1, steps=105, batch_size=4, measure_every=1, task_options=options
    )
    (runs,) = run_over_seeds([config], 2, tmp_path, jobs=1)
    last = at_end(table_of(runs))
    assert last["E_ca_definition"].is_not_null().all()
    assert last["E_ca_unbiased"].is_not_null().all()
