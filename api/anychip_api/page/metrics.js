// /metrics, read into numbers under names without their prefix.

export class Sample {
  constructor(text, time) {
    this.time = time;
    this.values = new Map();
    this.buckets = new Map();
    for (const line of text.split("\n")) this.#read(line);
  }

  #read(line) {
    const match = /^(?:\w+:)?(\w+)(?:\{(.*)\})? ([^ ]+)$/.exec(line);
    if (!match) return;
    const [, name, labels = "", number] = match;
    const value = Number(number.replace("+Inf", "Infinity"));
    const bound = /(?:^|,)le="([^"]*)"/.exec(labels);
    if (bound && name.endsWith("_bucket")) {
      const histogram = name.slice(0, -"_bucket".length);
      if (!this.buckets.has(histogram)) this.buckets.set(histogram, new Map());
      this.buckets.get(histogram).set(Number(bound[1].replace("+Inf", "Infinity")), value);
    } else {
      this.values.set(name, (this.values.get(name) ?? 0) + value);
    }
  }

  get(name) {
    return this.values.get(name) ?? 0;
  }

  // How much a counter grew a second since an older sample.
  rate(name, older) {
    const seconds = (this.time - older.time) / 1000;
    return seconds > 0 ? Math.max(0, this.get(name) - older.get(name)) / seconds : 0;
  }

  // The part-quantile of what a histogram saw since an older sample; null where it saw nothing.
  quantile(name, part, older) {
    const before = older.buckets.get(name);
    const rows = [...(this.buckets.get(name) ?? [])]
      .map(([bound, count]) => [bound, count - (before?.get(bound) ?? 0)])
      .sort((one, other) => one[0] - other[0]);
    const total = rows.length ? rows[rows.length - 1][1] : 0;
    if (total <= 0) return null;
    let [lower, below] = [0, 0];
    for (const [bound, count] of rows) {
      if (count >= part * total) {
        if (bound === Infinity) return lower;
        return lower + ((bound - lower) * (part * total - below)) / Math.max(1e-9, count - below);
      }
      [lower, below] = [bound, count];
    }
    return lower;
  }
}
