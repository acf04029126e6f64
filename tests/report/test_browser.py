"""The page in a real browser, from a file and without a network: it draws, and it answers."""

import json
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from report_samples import HOSTILE, OBJECTIVES, compared, config, records, save, without_printing

from trimol import report

selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"
    ),
    pytest.mark.slow,
]
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1280,900"),
)
PATIENCE = 120  # seconds, on a machine that is busy with other tests


@pytest.fixture(scope="module")
def browser():
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tempfile.mkdtemp()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """A page with two tasks, hostile names among them, opened and drawn."""
    with pytest.MonkeyPatch.context() as patch:
        without_printing(patch)
        yield opened(browser, tmp_path_factory)


def opened(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    compared(folder / "a", seeds=2, steps=200)
    more = records(OBJECTIVES, 200, batch=128)
    save(folder / "c", config("smg", steps=200), more)
    names = (HOSTILE, *(f"objective {i}" for i in range(4)))
    compared(
        folder / "b", methods=("static", HOSTILE), seeds=2, steps=100, objectives=names, task="toy"
    )
    address = Path(report.write(folder)).as_uri()
    browser.get("about:blank")
    browser.get_log("performance")  # what the browser's own first tab fetched
    browser.get(address)
    until(lambda: browser.execute_script("return document.documentElement.dataset.drawn"))
    return browser


def until(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "the browser did not get there"
        time.sleep(0.05)
    return found


def plots(page, figure, code):
    """A value from every plot of the first figure of that name."""
    found = f"[...document.querySelector('figure[data-figure={figure}]').querySelectorAll('.plot')]"
    return page.execute_script(f"return {found}.map(plot => {code});")


def click(page, selector):
    page.execute_script(f"document.querySelector({json.dumps(selector)}).click()")


def visible(page, figure, label):
    """Whether a method's main line is shown, in every panel and alternative."""
    name = json.dumps(label)
    return plots(
        page, figure, f"plot.data.filter(t => t.meta.label === {name}).map(t => t.visible)"
    )


def test_every_plot_is_drawn(page):
    assert page.execute_script("return document.documentElement.dataset.drawn") == "all"
    sizes = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map(plot => {"
        "  const found = plot.querySelector('svg.main-svg')?.getBoundingClientRect();"
        "  return [found?.width ?? 0, found?.height ?? 0,"
        "          plot.querySelectorAll('.trace, .heatmaplayer image').length]; })"
    )
    assert len(sizes) > 20
    assert min(min(width, height, traces) for width, height, traces in sizes) > 0


def test_nothing_is_fetched_and_nothing_complains(page):
    sent = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [
        m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"
    ]
    assert requests
    assert {url.partition(":")[0] for url in requests} <= {"file", "data", "blob"}
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_hostile_names_are_text(page):
    assert page.execute_script("return document.querySelectorAll('body script').length") == (
        page.execute_script("return document.querySelectorAll('script[type]').length + 1")
    )
    text = page.execute_script("return document.querySelector('#toy').textContent")
    assert HOSTILE in text
    ticks = page.execute_script(
        "return [...document.querySelectorAll('#toy [data-figure=cosines] .xtick text')]"
        ".map(tick => tick.textContent)"
    )
    assert any(tick.startswith("<script>") for tick in ticks)


def test_scale_can_be_chosen(page):
    kinds = "plot.layout.yaxis.type"
    assert set(plots(page, "errors", kinds)) == {"log"}
    click(page, "[data-figure=errors] [data-choose=scale] [value=linear]")
    until(lambda: set(plots(page, "errors", kinds)) == {"linear"})
    lows = plots(page, "errors", "plot.data[0].y[0] === plot.data[0].meta.ends.linear[0]")
    assert all(lows)
    click(page, "[data-figure=errors] [data-choose=scale] [value=log]")
    until(lambda: set(plots(page, "errors", kinds)) == {"log"})


def test_steps_or_samples_can_be_chosen(page):
    title, last = "plot.layout.xaxis.title.text", "plot.data[2].x.at(-1)"
    assert (set(plots(page, "errors", title)), set(plots(page, "errors", last))) == (
        {"samples"},
        {12800},
    )
    click(page, "[data-figure=errors] [data-choose=progress] [value=steps]")
    until(lambda: set(plots(page, "errors", title)) == {"steps"})
    assert set(plots(page, "errors", last)) == {200}


def test_training_and_test_losses_can_be_chosen(page):
    shown = "plot.data.filter(t => t.visible === true).map(t => t.meta.kind)"
    assert {kind for kinds in plots(page, "losses", shown) for kind in kinds} == {"test"}
    click(page, "[data-figure=losses] [data-choose=kind] [value=train]")
    until(lambda: {k for ks in plots(page, "losses", shown) for k in ks} == {"train"})
    click(page, "[data-figure=losses] [data-choose=kind] [value=test]")
    until(lambda: {k for ks in plots(page, "losses", shown) for k in ks} == {"test"})


def test_a_method_can_be_hidden_in_all_figures_of_its_task(page):
    click(page, "#digits .legend [data-label=mgda]")
    for figure in ("triangle", "errors", "weights", "conflicts"):
        until(lambda figure=figure: not any(any(v) for v in visible(page, figure, "mgda")))
        assert all(all(v) for v in visible(page, figure, "modo"))
    click(page, "#digits .legend [data-label=mgda]")
    until(lambda: all(all(v) for v in visible(page, "errors", "mgda")))


def test_the_slider_moves_the_matrices(page):
    z = "JSON.stringify(plot.data[0].z)"
    last = plots(page, "cosines", z)
    page.execute_script(
        "const slider = document.querySelector('[data-figure=cosines] input');"
        "slider.value = 0; slider.dispatchEvent(new Event('input'));"
    )
    first = plots(page, "cosines", "JSON.stringify(plot.layout.meta.frames[0])")
    until(lambda: plots(page, "cosines", z) == first)
    assert first != last
    shown = page.execute_script(
        "return document.querySelector('[data-figure=cosines] output').textContent"
    )
    assert shown == "0"


def test_a_phone_needs_no_sideways_scrolling(page):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        wide = "return [document.documentElement.scrollWidth, window.innerWidth]"
        until(lambda: page.execute_script(wide) == [390, 390])
        until(lambda: max(plots(page, "errors", "plot.querySelector('svg').clientWidth")) <= 390)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(page, scheme):
    """No serious finding of axe-core, in either colour scheme."""
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
    page.set_script_timeout(PATIENCE)
    try:
        page.execute_script(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
        found = page.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "const how = {resultTypes: ['violations'], ...arguments[0]};"
            "axe.run({exclude: [['.main-svg']]}, how).then(r => done(r.violations.map("
            "v => [v.impact, v.id, v.nodes.slice(0, 2).map(n => n.html.slice(0, 120))])))",
            {} if scheme == "light" else {"runOnly": ["color-contrast"]},
        )
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert [v for v in found if v[0] in ("serious", "critical")] == []


def test_the_page_has_landmarks_and_labelled_plots(page):
    count = "return document.querySelectorAll(arguments[0]).length"
    assert page.execute_script(count, "main") == 1
    assert page.execute_script(count, ".plot:not([aria-label])") == 0
    assert page.execute_script(count, "table caption") > 0


def test_nothing_is_cut_off_on_paper(page):
    """Paper does not scroll. An A4 page between its margins is some 700 px wide."""
    size = {"width": 700, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        wide = (
            "return [...document.querySelectorAll('#digits .scroll')]"
            ".filter(box => !box.closest('details')).map(box => box.scrollWidth)"
        )
        assert max(page.execute_script(wide)) <= 700
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
