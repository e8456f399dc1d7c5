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

  function stacked(parts, names, most, text) {
    const drawn = [];
    let at = 0;
    names.forEach((part, place) => {
      const [size, said] = parts[place] || [0, ""];
      const from = at;
      at += size;
      drawn.push({ bar: "", part, from: Math.min(from, most), to: Math.min(at, most), text: said });
    });
    return { parts: drawn, ends: [{ bar: "", text: text + (at > most ? grid.beyond : "") }] };
  }

  function show() {
    const at = place();
    const cell = grid.cells[at.join(",")];
    const verdict = document.getElementById("cell-verdict");
    const figures = document.getElementById("cell-figures");
    const counted = (cell && cell.figures) || [];
    const words = at.map((value, axis) => grid.words[axis][value]);
    document.getElementById("cell-command").textContent =
      [grid.base, ...words, (cell && cell.batch) || ""].filter(Boolean).join(" ");
    if (cell && cell.verdict) {
      verdict.textContent = cell.verdict;
      verdict.className = { fits: "fits", tight: "tight" }[cell.verdict] || "not";
    } else {
      verdict.textContent = cell
        ? cell.refused
        : "This page has no figures for that combination; the command below gives them.";
      verdict.className = "quiet";
    }
    figures.replaceChildren(...counted.map(([name, value, text]) => {
      const pair = document.createElement("div");
      const term = document.createElement("dt");
      const size = document.createElement("dd");
      term.textContent = grid.figures[name];
      size.textContent = text;
      size.dataset.value = value;
      pair.append(term, size);
      return pair;
    }));
    const figure = (name) => (counted.find((one) => grid.figures[one[0]] === name) || [0, 0, ""])[2].split(" (")[0];
    bar("cell-memory", (cell && cell.memory) || [], grid.memory, grid.most, figure("needed per GPU"));
    bar("cell-time", (cell && cell.time) || [], grid.time, Infinity, figure("step"));
  }

  function bar(name, parts, names, most, text) {
    if (!views[name]) return;
    const data = stacked(parts, names, most, text);
    views[name].data("parts", data.parts).data("ends", data.ends).resize().runAsync();
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
