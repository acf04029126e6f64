"use strict";
// Draws every plot from the JSON beside it, then lets the reader choose what is shown.
(async () => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const plots = all(".plot");
  const narrow = window.matchMedia("(max-width: 700px)").matches;
  const config = { responsive: true, displayModeBar: false };

  async function load() {
    const packed = document.getElementById("library").textContent;
    const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(unpacked).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("plotly.js did not start");
  }

  function state(element) {
    const figure = element.closest("figure");
    const hidden = new Set(all('.legend button[data-label][aria-pressed="false"]',
      element.closest("section")).map((button) => button.dataset.label));
    const names = ["kind", "scale", "progress"];
    return { hidden, ...Object.fromEntries(names.map((name) => [name, chosen(figure, name)])) };
  }

  function chosen(figure, name) {
    const button = figure.querySelector(`.choice[data-choose="${name}"] [aria-pressed="true"]`);
    return button ? button.value : "";
  }

  function refresh(plot) {
    if (!plot.data) return;
    const { hidden, kind, scale, progress } = state(plot);
    const panel = plot.closest(".panel");
    panel.hidden = panel.dataset.label !== "" && hidden.has(panel.dataset.label);
    if (panel.hidden) return;
    const { logarithmic, dtick } = plot.layout.meta ?? {};
    const traces = { visible: plot.data.map(({ meta }) =>
      !hidden.has(meta.label) && (meta.kind === "" || meta.kind === kind)) };
    const axes = {};
    if (logarithmic && scale !== plot.layout.yaxis.type) {
      traces.y = plot.data.map(({ meta, y }) => (meta.ends ? meta.ends[scale] : y));
      Object.assign(axes, { "yaxis.type": scale, "yaxis.autorange": true,
        "yaxis.dtick": scale === "log" ? dtick : null });
    }
    if (progress && progress !== plot.layout.xaxis.title.text) {
      traces.x = plot.data.map(({ meta }) => meta.x[progress]);
      Object.assign(axes, { "xaxis.title.text": progress, "xaxis.autorange": true });
    }
    window.Plotly.update(plot, traces, axes);
  }

  function press(buttons, pressed) {
    for (const button of buttons) button.setAttribute("aria-pressed", pressed(button));
  }

  for (const button of all(".choice button")) {
    button.addEventListener("click", () => {
      press(all("button", button.parentElement), (other) => other === button);
      all(".plot", button.closest("figure")).forEach(refresh);
    });
  }
  for (const button of all(".legend button")) {
    button.addEventListener("click", () => {
      const labels = all("button[data-label]", button.parentElement);
      if (button.dataset.all) press(labels, () => button.dataset.all === "show");
      else press([button], () => button.getAttribute("aria-pressed") === "false");
      all(".plot", button.closest("section")).forEach(refresh);
    });
  }
  for (const slider of all(".slider input")) {
    slider.addEventListener("input", () => {
      const figure = slider.closest("figure");
      for (const plot of all(".plot", figure).filter((found) => found.data)) {
        const { frames, steps } = plot.layout.meta;
        window.Plotly.restyle(plot, { z: [frames[slider.value]] });
        plot.closest(".panel").querySelector(".at").textContent = steps[slider.value];
      }
      figure.querySelector("output").textContent = slider.dataset.steps.split(" ")[slider.value];
    });
  }

  try {
    if (plots.length) await load();
    for (const plot of plots) {
      const { data, layout } = JSON.parse(plot.nextElementSibling.textContent);
      if (narrow) layout.dragmode = false; // a finger on a plot scrolls the page
      await window.Plotly.newPlot(plot, data, layout, config);
      await new Promise((resume) => setTimeout(resume)); // the page answers between plots
    }
    document.documentElement.dataset.drawn = "all";
  } catch (error) {
    document.documentElement.dataset.drawn = "failed";
    for (const plot of plots.filter((found) => !found.data)) {
      plot.innerHTML = "<p class='quiet'>This browser cannot draw the plot: open the SVG file.</p>";
    }
    throw error;
  }
})();
