// Draws the first figure at once and the others as they come into view, keeps their colours, and makes ready for print.
"use strict";
(() => {
  const PRINTED_PX = 680;
  const NARROW_PX = 560;
  const TITLE = 30; // characters that fit below a figure on a phone
  const SHORT = { milliseconds: "ms", microseconds: "µs" };
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touched = matchMedia("(hover: none)"); // a finger that moves over a figure scrolls the page
  const places = () => Array.from(document.querySelectorAll(".plot"));
  const drawn = new Set();
  const { config, themes } = JSON.parse(document.getElementById("settings").textContent);

  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  function remembered(value) {
    try {
      if (value) localStorage.setItem("flightlog-theme", value);
      return localStorage.getItem("flightlog-theme");
    } catch (error) {
      return null; // pages from a file may keep nothing
    }
  }

  function colours(layout, name) { // of the axes that a figure has
    return Object.fromEntries(Object.entries(themes[name]).filter(([path]) => path.split(".")[0] in layout));
  }

  function put(layout, path, value) {
    const steps = path.split(".");
    let at = layout;
    for (const step of steps.slice(0, -1)) at = at[step] ??= {};
    at[steps.at(-1)] = value;
  }

  function draw(place) {
    if (drawn.has(place) || !window.Plotly) return;
    const { data, layout } = JSON.parse(document.getElementById(`${place.dataset.figure}-data`).textContent);
    for (const [path, value] of Object.entries(colours(layout, theme()))) put(layout, path, value);
    delete layout.width;
    layout.autosize = true;
    if (place.clientWidth < NARROW_PX) narrow(data, layout, place.clientWidth);
    if (touched.matches) layout.dragmode = false;
    drawn.add(place);
    const buttons = touched.matches ? { displayModeBar: false } : {};
    window.Plotly.newPlot(place, data, layout, { ...config, ...buttons, showTips: false });
    place.dataset.drawn = "1";
    if (drawn.size === 1) performance.mark("flightlog-first-figure");
  }

  function narrow(data, layout, width) { // on a phone: few ticks, no title that would be cut, room for the legend's rows
    for (const [name, axis] of Object.entries(layout)) {
      if (!/^[xy]axis/.test(name) || !axis) continue;
      const clock = /^time since \S+ (\S+ UTC), (\w+)$/.exec(axis.title?.text ?? "");
      if (clock) axis.title.text = `${SHORT[clock[2]] ?? clock[2]} since ${clock[1]}`;
      if (axis.title?.text?.length > TITLE) delete axis.title;
      if (name[0] === "y") continue;
      axis.tickangle = 0;
      axis.nticks = 4;
      if (axis.tickvals?.length > 4) {
        const every = Math.ceil(axis.tickvals.length / 4);
        for (const list of ["tickvals", "ticktext"]) axis[list] = axis[list]?.filter((_, n) => n % every === 0);
      }
    }
    if (layout.xaxis?.range && data.some((trace) => trace.orientation === "h" && trace.textposition === "outside")) {
      layout.xaxis.range[1] *= 1.5; // room for what stands beside the longest bar
    }
    if (!layout.showlegend) return;
    const names = data.filter((trace) => trace.name && trace.showlegend !== false).map((trace) => trace.name.length);
    const columns = Math.max(1, Math.floor((width - 110) / (Math.max(1, ...names) * 7 + 48)));
    const room = (Math.ceil(names.length / columns) - 1) * 19 + 8;
    layout.height += room;
    layout.margin = Object.assign({}, layout.margin, { t: (layout.margin?.t ?? 0) + room });
  }

  function recolour(name) {
    for (const place of drawn) window.Plotly.relayout(place, colours(place.layout, name));
  }

  function themed() {
    const button = document.getElementById("theme");
    const say = () => { button.textContent = theme() === "dark" ? "Light" : "Dark"; };
    const saved = remembered();
    if (saved === "dark" || saved === "light") root.dataset.theme = saved;
    button.hidden = false;
    say();
    button.addEventListener("click", () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      remembered(root.dataset.theme);
      say();
      recolour(theme());
    });
    dark.addEventListener("change", () => { say(); recolour(theme()); });
  }

  function contents() {
    const list = document.querySelector("nav details");
    const wide = matchMedia("(min-width: 68.01rem)");
    const set = () => { list.open = wide.matches; };
    set();
    wide.addEventListener("change", set);
  }

  function inView() {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
      }
    }, { rootMargin: "300px" });
    const first = places().find((place) => place.checkVisibility?.() ?? true);
    if (first) draw(first); // however far below a long verdict it stands
    for (const place of places()) seen.observe(place);
    for (const one of document.querySelectorAll("details")) { // a figure in it has no size before it is open
      one.addEventListener("toggle", () => {
        for (const place of one.querySelectorAll(".plot")) if (drawn.has(place)) window.Plotly.Plots.resize(place);
      });
    }
  }

  function printing() {
    let closed = [];
    addEventListener("beforeprint", () => {
      closed = Array.from(document.querySelectorAll("main details:not([open])"));
      for (const one of closed) one.open = true;
      for (const place of places()) {
        draw(place);
        window.Plotly.relayout(place, { ...colours(place.layout, "light"), width: PRINTED_PX, autosize: false });
      }
    });
    addEventListener("afterprint", () => {
      for (const one of closed) one.open = false;
      for (const place of drawn) {
        window.Plotly.relayout(place, { ...colours(place.layout, theme()), width: null, autosize: true });
      }
    });
  }

  function library() { // takes a second to read: by then the page is there, and every number on it
    const source = document.createElement("script");
    source.textContent = document.getElementById("plotly").textContent;
    document.head.append(source);
  }

  for (const place of places()) place.style.minHeight = `${place.dataset.height}px`; // nothing moves when it is drawn
  themed();
  contents();
  addEventListener("load", () => setTimeout(() => { library(); inView(); printing(); }));
})();
