"""One HTML page with everything in it, and the figures as files beside it."""

import base64
import gzip
import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from trimol import _files
from trimol._failures import BadValue
from trimol._version import __version__
from trimol._warnings import warn
from trimol._words import count
from trimol.report import _curves as curves
from trimol.report import _diagnosis_plots as diagnosis_plots
from trimol.report import _front as fronts
from trimol.report import _interactive as interactive
from trimol.report import _printed as printed
from trimol.report import _search_figures as search
from trimol.report import _search_plots as search_plots
from trimol.report import _summary as summary
from trimol.report._curves import Cosines, Curves
from trimol.report._diagnosed import Diagnosed, chosen, gains, notes, warned
from trimol.report._front import FrontFigure
from trimol.report._numbers import number
from trimol.report._reading import read
from trimol.report._runs import Comparison, Setting, command, comparisons, slugs
from trimol.report._step_effects import NOTE, TITLE, step_effects
from trimol.report._style import Look, looks, needed
from trimol.report._triangle import Triangle, triangle
from trimol.runs import _storage as files
from trimol.runs import study as results
from trimol.runs._storage import StoreError
from trimol.runs.store import StoredRun
from trimol.runs.study import Study, within

PAGE = "report.html"
FIGURES = "figures"
GLYPHS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "x": "✕"}
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
FOREST = "Differences from static weighting"
FOREST_NOTE = (
    "On test data, seed by seed, as a share of the baseline's number: right of 0 is better. Bars "
    "are 95 % intervals of each difference alone."
)
REACHED = "What the settings reach"
REACHED_NOTE = (
    "Every setting that was tried, on validation data, the mean over seeds. Filled: no other "
    "setting of the same contender is better on all metrics."
)
# A study with more rows than this hides them behind a click.
LONG_TABLE = 40
# The largest figure that is put into the page, in bytes.
LARGEST = 2**25
Info = Curves | Cosines | Triangle | FrontFigure
View = dict[str, Any]  # what the template shows of something, by the names it uses


class ReportError(BadValue):
    """There is nothing to report on; the message is one line."""


class Link(NamedTuple):
    """A file, by its address relative to the page."""

    text: str
    address: str


class Written(NamedTuple):
    """A page that was written.

    Attributes:
        page: The file.
        unfinished: The runs that are not finished, and what has become of each, a line each.
        left_out: What could not be read, a line each.
    """

    page: Path
    unfinished: list[str]
    left_out: list[str]


class Picture(NamedTuple):
    """A figure inside the page: its file's name, and the file itself as a ``data:`` URI."""

    name: str
    uri: str


def write(folder: Path | str) -> Path:
    """Report on all runs and studies in a folder.

    Writes ``report.html``, which needs no other file and no network, and the figures of the runs
    as ``figures/*.svg`` and ``*.pdf``. Each file is replaced as a whole. What cannot be read
    (damaged, edited, not ours, a link that leads out of the folder) is left out: the page lists it,
    and a warning says it.

    Args:
        folder: Where runs (``trimol run``, ``compare``) and studies (``trimol reproduce``) are.

    Returns:
        The page.

    Raises:
        ReportError: There is no such folder, or nothing in it to report on.
        StoreError: The page cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from trimol.runs.study import Study, row, save
        >>> with TemporaryDirectory() as folder:
        ...     _ = save(Study("toy", "A toy", rows=[row("modo", "R_opt", [1.0, 2.0])]), folder)
        ...     write(folder).name
        'report.html'
    """
    written = write_page(Path(folder))
    for line in written.left_out:
        warn(f"left out of the report: {line}")
    return written.page


def write_page(folder: Path) -> Written:
    """What `write` does, and what is to be said about it."""
    if not folder.is_dir():
        raise ReportError(f"folder must be an existing folder, found {str(folder)!r}")
    runs, studies, left_out, diagnoses = read(folder)
    if not runs and not studies and not diagnoses:
        why = f" that can be read: {left_out[0]}" if left_out else ""
        raise ReportError(f"folder must hold runs or studies, found none in {str(folder)!r}{why}")
    if not within(folder, folder / FIGURES):
        raise ReportError(f"{folder / FIGURES} must be a folder, found a link that leads out")
    compared = comparisons(runs)
    style = looks(
        [
            *(label for told in diagnoses for label in told.contenders),
            *(label for comparison in compared for label in comparison.labels),
        ]
    )
    views = [_comparison(comparison, style, folder) for comparison in compared]
    names = slugs([study.name for study in studies])
    told = [_study(s, slug, folder, left_out) for s, slug in zip(studies, names, strict=True)]
    titles = slugs([f"diagnosis of {found.task}" for found in diagnoses])
    judged = [
        _diagnosis(found, slug, style, folder)
        for found, slug in zip(diagnoses, titles, strict=True)
    ]
    page = _rendered(folder, views, told, left_out, judged)
    files.write(folder / PAGE, page.encode("utf-8", "replace"))
    unfinished = [line for comparison in compared for line in summary.unfinished(comparison)]
    return Written(folder / PAGE, unfinished, left_out)


def pictures(study: Study, left_out: list[str]) -> list[Picture]:
    """The study's figures: of one drawn in several formats the vector graphic, once.

    Those that cannot be read are added to what is left out.
    """
    if study.folder is None:
        return []
    paths = [study.folder / name for name in study.figures]
    # The last of a name stays: a vector graphic, where there is one.
    chosen = {path.stem: path for kind in reversed(KINDS) for path in paths if path.suffix == kind}
    order = dict.fromkeys(path.stem for path in paths)
    found = []
    for path in (chosen[stem] for stem in order if stem in chosen):
        try:
            found.append(_picture(path))
        except StoreError as error:
            left_out.append(str(error))
    return found


def _comparison(comparison: Comparison, style: Mapping[str, Look], folder: Path) -> View:
    infos = [
        triangle(comparison),
        curves.errors(comparison),
        curves.losses(comparison),
        curves.metrics(comparison),
        curves.weights(comparison),
        curves.conflicts(comparison),
        curves.cosines(comparison),
    ]
    chosen = [(label, style[label]) for label in comparison.labels]
    return {
        "comparison": comparison,
        "headline": summary.headline(comparison),
        "warnings": summary.warnings(comparison),
        "final": summary.final(comparison),
        "steps": step_effects({setting.label: setting.runs for setting in comparison.settings}),
        "legend": [(label, look, GLYPHS[look.symbol]) for label, look in chosen],
        "figures": [_figure(info, comparison.slug, style, folder) for info in infos if info],
        "absent": summary.absent(comparison),
        "settings": summary.settings(comparison),
        "environments": _environments(comparison),
        "runs": [
            _run(setting, run, folder)
            for setting in comparison.settings
            for run in (*setting.runs, *setting.left_out)
        ],
    }


def _figure(info: Info, slug: str, style: Mapping[str, Look], folder: Path) -> View:
    """A figure: panels, what can be chosen, the files, and a table beside it."""
    # Beside its title, a panel has the setting that all of it belongs to, if there is one.
    if isinstance(info, Curves):
        drawn, plots = printed.curves(info, style), interactive.curves(info, style)
        titles = [(panel.title, "") for panel in info.panels]
    elif isinstance(info, Cosines):
        drawn, plots = printed.cosines(info), interactive.cosines(info)
        titles = [(setting.label, setting.label) for setting in info.settings]
    elif isinstance(info, FrontFigure):
        drawn, plots = printed.front(info, style), interactive.front(info, style)
        titles = [("", "")]
    else:
        drawn, plots = printed.triangle(info, style), interactive.triangle(info, style)
        titles = [("", "")]
    return {
        "info": info,
        "panels": [
            {"title": title, "label": label, "plot": interactive.embedded(plot)}
            for (title, label), plot in zip(titles, plots, strict=True)
        ],
        "links": _save(drawn, f"{slug}-{info.name}", folder),
        **{name: getattr(info, name, ()) for name in ("kinds", "scales", "progress", "steps")},
        "table": summary.relative(info) if isinstance(info, Triangle) else None,
    }


def _save(drawn: Mapping[str, bytes], name: str, folder: Path) -> list[Link]:
    """Write a figure's files, and link to them."""
    files.make_folder(folder / FIGURES)
    paths = {form: folder / FIGURES / f"{name}.{form}" for form in drawn}
    for form, path in paths.items():
        files.write(path, drawn[form])
    return [_link(path, folder, text=form.upper()) for form, path in paths.items()]


def _environments(comparison: Comparison) -> list[tuple[str, str]]:
    """The task's options, then every value that the runs' environments have, but their times."""
    runs = [run for s in comparison.settings for run in (*s.runs, *s.left_out)]
    values: dict[str, dict[str, None]] = {"task": {runs[0].config.task: None}}
    for run in runs:
        for name, value in (*_options(run), *_facts(run.environment)):
            if name != "started":
                values.setdefault(name, {})[value] = None
    seconds = [run.summary["seconds"] for run in runs if run.summary and "seconds" in run.summary]
    if seconds:
        values["time of all finished runs"] = {f"{number(sum(seconds))} s": None}
    return [(name, ", ".join(different)) for name, different in values.items()]


def _options(run: StoredRun) -> list[tuple[str, str]]:
    source = [("source", f"sha256 {run.config.source}")] if run.config.source else []
    return [(f"task's {k}", str(v)) for k, v in run.config.task_options.items()] + source


def _run(setting: Setting, run: StoredRun, folder: Path) -> View:
    present = [path for path in sorted(run.path.iterdir()) if not path.name.startswith(".")]
    return {
        "label": setting.label,
        "seed": run.config.seed,
        "state": run.state,
        "command": command(run.config),
        "links": [_link(path, folder) for path in present if _may_be_linked(path, folder)],
    }


def _may_be_linked(path: Path, folder: Path) -> bool:
    """Whether a file is one of the folder's own: a link may lead elsewhere."""
    return path.is_file() and within(folder, path)


def _study(study: Study, slug: str, folder: Path, left_out: list[str]) -> View:
    home = folder if study.folder is None else study.folder
    own = [home / name for name in (results.FILE, *study.files)]
    return {
        "study": study,
        "absent": [],
        **_front(study, slug, folder),
        **_search(study, slug, folder, left_out),
        "pictures": pictures(study, left_out),
        "rows": summary.measured_and_paper(study),
        "long": len(study.rows) > LONG_TABLE or fronts.is_front(study),
        "environment": _facts(study.environment),
        "links": [_link(path, folder) for path in own if _may_be_linked(path, folder)],
    }


def _search(study: Study, slug: str, folder: Path, left_out: list[str]) -> View:
    """The figures of a search, and which are missing; nothing of any other study."""
    try:
        figures, missing = search.figures(study)
    except BadValue as error:
        left_out.append(str(error))
        return {}
    if not figures and not missing:
        return {}
    style = looks(search.methods(study))
    return {
        "figures": [_search_figure(figure, slug, style, folder) for figure in figures],
        "legend": [(label, look, GLYPHS[look.symbol]) for label, look in style.items()],
        "absent": missing,
    }


def _search_figure(
    figure: search.SearchFigure, slug: str, style: Mapping[str, Look], folder: Path
) -> View:
    plots = search_plots.search(figure, style)
    nothing = dict.fromkeys(("scales", "progress", "steps"), ())
    return {
        "info": figure,
        "panels": [
            {"title": panel.title, "label": panel.label, "plot": interactive.embedded(plot)}
            for panel, plot in zip(figure.panels, plots, strict=True)
        ],
        "kinds": figure.kinds,
        "links": _save(printed.search(figure, style), f"{slug}-{figure.name}", folder),
        "table": None,
        **nothing,
    }


def _diagnosis(found: Diagnosed, slug: str, style: Mapping[str, Look], folder: Path) -> View:
    """A diagnosis: its sentence, its tables and its figures."""
    figures = []
    if bars := found.bars:
        high = {"height": diagnosis_plots.height(bars)}
        panels = [_plotted(diagnosis_plots.forest(bars, style)) | high]
        links = _save(printed.forest(bars, style), f"{slug}-differences", folder)
        figures.append({"title": FOREST, "caption": FOREST_NOTE, "panels": panels, "links": links})
    if found.reached:
        panels = [_plotted(diagnosis_plots.reached(own, style)) for own in found.reached]
        links = _save(printed.reached(found.reached, style), f"{slug}-reached", folder)
        figures.append(
            {"title": REACHED, "caption": REACHED_NOTE, "panels": panels, "links": links}
        )
    return {
        "found": found,
        "gains": gains(found.content),
        "chosen": chosen(found.content),
        "warnings": warned(found.content),
        "notes": notes(found.content),
        "figures": figures,
    }


def _plotted(plot: Any) -> View:
    return {"title": "", "label": "", "plot": interactive.embedded(plot)}


def _front(study: Study, slug: str, folder: Path) -> View:
    """The figures, sentences and points of a front; nothing of any other study."""
    if not fronts.is_front(study):
        return {"figures": [], "legend": [], "said": [], "marks": "", "listings": []}
    infos = fronts.figures(study)
    style = looks(label for info in infos for label in info.labels)
    return {
        "figures": [_figure(info, slug, style, folder) for info in infos],
        "legend": [(label, look, GLYPHS[look.symbol]) for label, look in style.items()],
        "said": [*fronts.sentences(study), fronts.HOW_TO_READ],
        "marks": fronts.MARKS,
        "listings": [(label, fronts.listing(study, label)) for label in style],
    }


def _picture(path: Path) -> Picture:
    try:
        size = path.stat().st_size
        if not path.is_file() or size > LARGEST:
            raise StoreError(f"{path} must be a file of at most {LARGEST} bytes, found {size}")
        content = base64.b64encode(_files.read(path)).decode()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    return Picture(path.name, f"data:{KINDS[path.suffix]};base64,{content}")


def _facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """An environment, ready to be listed."""
    return [(name, str(value)) for name, value in environment.items() if value is not None]


def _link(path: Path, folder: Path, text: str | None = None) -> Link:
    relative = Path(os.path.relpath(path, folder)).as_posix()
    return Link(path.name if text is None else text, quote(relative))


def _rendered(
    folder: Path,
    views: Sequence[View],
    studies: Sequence[View],
    left_out: Sequence[str],
    diagnoses: Sequence[View],
) -> str:
    """The page. Jinja escapes every string; what is inserted as it is comes from this package."""
    jinja, markup = needed("jinja2"), needed("markupsafe").Markup
    environment = jinja.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja.StrictUndefined
    )
    script = _asset("page.js")
    # A page about one thing has its title, and no other; a diagnosis comes with its own runs.
    own = [
        *(f"Diagnosis of {view['found'].task}" for view in diagnoses),
        *(view["comparison"].title for view in views),
        *(view["study"].title for view in studies),
    ]
    alone = len(own) == 1
    diagnosed = len(diagnoses) == 1 and not studies
    # Without figures there is nothing to draw, and two megabytes less to carry.
    drawn = any(view["figures"] for view in (*views, *studies, *diagnoses))
    library, its_hash = _library() if drawn else ("", "")
    page: str = environment.from_string(_asset("page.html.jinja")).render(
        title=own[0] if alone or diagnosed else folder.resolve().name or "trimol",
        alone=alone,
        in_rows=_in_rows,
        comparisons=views,
        diagnoses=diagnoses,
        studies=studies,
        left_out=left_out,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        count=count,
        steps={"title": TITLE, "note": NOTE},
        style=markup(_asset("page.css")),
        script=markup(script),
        library=markup(library),
        hashes=markup(f"{_hash(script)} {its_hash}"),
        markup=markup,
    )
    return page


def _in_rows(panels: int) -> str:
    """How many panels stand in a row of a wide page, as a class: three, unless one stayed alone.

    >>> [_in_rows(panels) for panels in (3, 4, 5, 7, 13)]
    ['', ' four', '', ' four', ' five']
    """
    if panels % 3 != 1 or panels == 1:
        return ""
    return " five" if panels % 4 == 1 else " four"


def _asset(name: str) -> str:
    return resources.files("trimol.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _library() -> tuple[str, str]:
    """plotly.js, compressed and spelled in letters (the browser undoes both), and its hash."""
    text = interactive.library()
    packed = gzip.compress(text.encode(), mtime=0)  # no time stamp: the same page every time
    return base64.b64encode(packed).decode(), _hash(text)


def _hash(script: str) -> str:
    """How a content security policy names the one script that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
