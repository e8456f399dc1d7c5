"use strict";
(() => {
  const carried = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = carried("charts");
  const grid = carried("grid");
  const options = { actions: false, renderer: "svg", mode: "vega-lite", tooltip: { sanitize: (value) => String(value) } };
  const views = {};

  async function draw(name) {
    const place = document.getElementById(`chart-${name}`);
    views[name] = (await vegaEmbed(place, charts[name], options)).view;
  }

  function copy(button) {
    const text = document.getElementById(button.dataset.copies).textContent;
    const said = document.getElementById("said");
    const done = () => { said.textContent = ""; said.textContent = `Copied: ${button.getAttribute("aria-label")}`; };
    const select = () => {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
      done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, select);
    else select();
  }

  const controls = [...document.querySelectorAll(".controls select")];
  const place = () => controls.map((control) => control.selectedIndex);

  function rows(bar, names) {
    const drawn = [];
    names.forEach((part, order) => {
      const size = bar[part];
      if (size) drawn.push({ bar: "", part, order, size: size[0], text: size[1], verdict: "" });
    });
    return drawn.length ? drawn : [{ bar: "", part: names[0], order: 0, size: 0, text: "", verdict: "" }];
  }

  function show() {
    const at = place();
    const cell = grid.cells[at.join(",")];
    const verdict = document.getElementById("cell-verdict");
    const figures = document.getElementById("cell-figures");
    const command = document.getElementById("cell-command");
    figures.replaceChildren();
    const words = controls.map((control, axis) => grid.words[axis][control.selectedIndex]).filter(Boolean);
    command.textContent = cell ? cell.command : [grid.base, ...words].join(" ");
    if (!cell || cell.refused) {
      verdict.textContent = cell ? cell.refused : "This page has no figures for that combination; the command below gives them.";
      verdict.className = "quiet";
    } else {
      verdict.textContent = cell.verdict;
      verdict.className = { fits: "fits", tight: "tight" }[cell.verdict] || "not";
      for (const [name, value, text] of cell.figures) {
        const pair = document.createElement("div");
        const term = document.createElement("dt");
        const size = document.createElement("dd");
        term.textContent = name;
        size.textContent = text;
        size.dataset.value = value;
        pair.append(term, size);
        figures.append(pair);
      }
    }
    for (const [name, parts] of [["cell-memory", "memory"], ["cell-time", "time"]]) {
      if (views[name]) views[name].data("rows", rows((cell && cell[parts]) || {}, grid[parts])).resize().runAsync();
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copies]");
    if (button) copy(button);
  });
  // The settings stand behind # of the page's address, so that they can be passed on too.
  const names = controls.map((control) => control.name);
  function read() {
    const stated = new URLSearchParams(location.hash.slice(1));
    controls.forEach((control, axis) => {
      const at = [...control.options].findIndex((option) => option.text === stated.get(names[axis]));
      if (at >= 0) control.selectedIndex = at;
    });
  }
  function changed() {
    const stated = new URLSearchParams(controls.map((control, axis) => [names[axis], control.selectedOptions[0].text]));
    history.replaceState(null, "", `#${stated}`);
    show();
  }
  const form = document.getElementById("what-if-form");
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => setTimeout(changed));
  window.addEventListener("hashchange", () => { read(); show(); });
  read();
  show();
  Promise.all(Object.keys(charts).map(draw)).then(show).then(() => { document.body.dataset.ready = "yes"; });
})();
