// Line charts of the last two minutes, drawn as SVG from /metrics once a second.

import { Sample } from "./metrics.js";

const PERIOD = 1000;
const KEPT = 120;
const WINDOW = 15; // samples that percentiles look back
const SVG = "http://www.w3.org/2000/svg";

const whole = (value) => Math.round(value).toString();
const milliseconds = (value) => (value < 10 ? value.toFixed(1) : Math.round(value).toString());

function latency(name, part) {
  return (now, before, past) => {
    const seconds = now.quantile(name, part, past);
    return seconds === null ? null : seconds * 1000;
  };
}

const CHARTS = [
  {
    id: "tokens", title: "Tokens a second", show: whole,
    lines: [
      ["generated", (now, before) => now.rate("generation_tokens_total", before)],
      ["prompt", (now, before) => now.rate("prompt_tokens_total", before)],
    ],
  },
  {
    id: "requests", title: "Sequences", show: whole,
    lines: [
      ["running", (now) => now.get("num_requests_running")],
      ["waiting", (now) => now.get("num_requests_waiting")],
    ],
  },
  {
    id: "cache", title: "KV cache in use, %", show: (value) => value.toFixed(1), most: 100,
    lines: [["used", (now) => now.get("kv_cache_usage_perc") * 100]],
  },
  {
    id: "first", title: "First token, ms", show: milliseconds,
    lines: [
      ["p50", latency("time_to_first_token_seconds", 0.5)],
      ["p95", latency("time_to_first_token_seconds", 0.95)],
    ],
  },
  {
    id: "between", title: "Between tokens, ms", show: milliseconds,
    lines: [
      ["p50", latency("inter_token_latency_seconds", 0.5)],
      ["p95", latency("inter_token_latency_seconds", 0.95)],
    ],
  },
];

class Chart {
  constructor({ id, title, lines, show, most }) {
    this.lines = lines.map(([name, read]) => ({ name, read, points: [] }));
    this.show = show;
    this.most = most;
    this.element = document.createElement("div");
    this.element.className = "chart";
    this.element.id = `chart-${id}`;
    const heading = document.createElement("h2");
    this.output = document.createElement("output");
    heading.append(title, this.output);
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${KEPT - 1} 100`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.element.append(heading, this.svg);
  }

  add(now, before, past) {
    for (const line of this.lines) {
      line.points.push(line.read(now, before, past));
      if (line.points.length > KEPT) line.points.shift();
    }
    this.draw();
  }

  draw() {
    const values = this.lines.flatMap((line) => line.points).filter((value) => value !== null);
    const most = this.most ?? Math.max(1, ...values) * 1.1;
    const paths = this.lines.map((line, index) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", index ? "second" : "first");
      path.setAttribute("d", this.outline(line.points, most));
      return path;
    });
    const base = document.createElementNS(SVG, "path");
    base.setAttribute("class", "base");
    base.setAttribute("d", `M0 99.5H${KEPT}`);
    this.svg.replaceChildren(base, ...paths);
    this.output.replaceChildren(...this.lines.flatMap((line, index) => this.label(line, index)));
  }

  outline(points, most) {
    const start = KEPT - points.length;
    let pen = "M";
    const parts = [];
    points.forEach((value, index) => {
      if (value === null) {
        pen = "M";
        return;
      }
      parts.push(`${pen}${start + index} ${(99 - (Math.min(value, most) / most) * 95).toFixed(2)}`);
      pen = "L";
    });
    return parts.join("");
  }

  label(line, index) {
    const value = line.points[line.points.length - 1];
    const name = document.createElement("span");
    name.className = index ? "key-second" : "key-first";
    name.textContent = line.name;
    return [index ? "  " : "", name, ` ${value === null ? "–" : this.show(value)}`];
  }
}

export function startCharts(onTrouble) {
  const charts = CHARTS.map((chart) => new Chart(chart));
  document.getElementById("charts").append(...charts.map((chart) => chart.element));
  const samples = [];

  async function tick() {
    try {
      const response = await fetch(new URL("metrics", document.baseURI));
      const now = new Sample(await response.text(), performance.now());
      const before = samples[samples.length - 1] ?? now;
      const past = samples[Math.max(0, samples.length - WINDOW)] ?? now;
      samples.push(now);
      if (samples.length > WINDOW + 1) samples.shift();
      for (const chart of charts) chart.add(now, before, past);
      onTrouble("");
    } catch {
      onTrouble("The server does not answer.");
    }
    setTimeout(tick, document.hidden ? 5 * PERIOD : PERIOD);
  }

  tick();
}
