// Plots rates and refills since the page was opened, from totals that it fetches every two seconds. The browser keeps
// them for as long as its tab is open.
"use strict";
(() => {
  const EVERY = 2000; // milliseconds
  const KEEP = 450; // points: 15 minutes
  const GAP = 10; // seconds without a reading, after which the line is interrupted
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 21600, 86400]; // seconds between two times of the axis
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
  const long = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
  const clock = uPlot.fmtDate("{HH}:{mm}:{ss}");

  const upTo = (least) => (plot, low, high) => [0, Math.max(least, (high || 0) * 1.15)];
  const height = (box) => (box.clientWidth < 480 ? 150 : 190);

  const axis = (scale, side, grid) => ({
    scale,
    side,
    size: 52,
    stroke: colour("--soft"),
    font: "12px system-ui, sans-serif",
    grid: { show: grid, stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    values: (plot, marks) => marks.map((mark) => short.format(mark)),
  });

  const options = (box, caption) => ({
    width: box.clientWidth,
    height: height(box),
    legend: { live: true, mount: (plot, legend) => caption.append(legend) },
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { time: true }, rate: { range: upTo(1) }, ms: { range: upTo(5) } },
    axes: [
      { stroke: colour("--soft"), font: "12px system-ui, sans-serif", grid: { show: false }, ticks: { show: false }, size: 28, space: 80, incrs: STEPS, values: (plot, marks) => marks.map((at) => (plot.data[0].length > 1 ? clock(new Date(at * 1000)) : "")) },
      axis("rate", 3, true),
      axis("ms", 1, false),
    ],
    series: [
      { label: "", value: (plot, at) => (at == null ? "–" : clock(new Date(at * 1000))) },
      {
        label: "ids/s",
        scale: "rate",
        stroke: colour("--rate"),
        fill: colour("--rate-fill"),
        width: 1.75,
        points: { show: false },
        value: (plot, rate) => (rate == null ? "–" : long.format(rate)),
      },
      {
        label: "refill ms",
        scale: "ms",
        stroke: colour("--refill"),
        paths: () => null,
        points: { show: true, size: 5, fill: colour("--refill"), stroke: colour("--refill") },
        value: (plot, ms) => (ms == null ? "–" : long.format(ms)),
      },
    ],
  });

  const start = (figure) => {
    const box = figure.querySelector(".canvas");
    let plot = null;
    const key = `plot ${figure.dataset.series}`;
    let data = JSON.parse(sessionStorage.getItem(key)) || [[], [], []];
    let before = null;

    const last = () => plot.setLegend({ idx: Math.max(0, data[0].length - 1) }); // when the pointer is elsewhere
    const draw = () => {
      if (plot) plot.destroy();
      plot = new uPlot(options(box, figure.querySelector("figcaption")), data, box);
      plot.over.addEventListener("mouseleave", () => setTimeout(last));
      figure.dataset.points = data[0].length;
    };
    const append = (...point) => {
      data = data.map((column, at) => [...column, point[at]].slice(-KEEP));
    };
    const ask = async () => {
      if (window.consoleRests && window.consoleRests() && data[0].length) return;
      const answer = await fetch(figure.dataset.series, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
      if (!answer.ok) return;
      const found = await answer.json();
      if (!before || found.at <= before.at || found.ids < before.ids) {
        before = found; // the first one, one that was read already, or of a service that started again
        return;
      }
      const passed = found.at - before.at;
      const lastAt = data[0].at(-1);
      if (lastAt && found.at - lastAt > passed + GAP) append(lastAt + 1, null, null);
      append(found.at, (found.ids - before.ids) / passed, found.refill === before.refill ? null : (found.refill ?? 0) * 1000 || null);
      before = found;
      sessionStorage.setItem(key, JSON.stringify(data));
      plot.setData(data);
      figure.dataset.points = plot.data[0].length;
      if (plot.cursor.idx == null) last();
    };
    const again = () => ask().catch(() => {}).finally(() => setTimeout(again, EVERY));

    draw();
    again();
    dark.addEventListener("change", draw);
    new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: height(box) })).observe(box);
  };

  document.querySelectorAll("[data-series]").forEach(start);
})();
