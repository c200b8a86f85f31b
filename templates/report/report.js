"use strict";
// The controls of a report: the graph, which opens by layer, and the slider over passes. Tables and plots need neither.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const one = (selector) => document.querySelector(selector);
  const svg = (name, attributes, ...inner) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inner);
    return element;
  };
  const option = (text) => Object.assign(document.createElement("option"), { textContent: text, value: text });
  document.documentElement.classList.add("js");

  // ------------------------------------------------------------------------------------------------------------ graph
  const entries = data.entries.filter((entry) => entry.kernels.length);
  const opened = new Set();
  const parts = (kernel) => (kernel.origin ? kernel.origin.split(/[./]/) : []);

  // The box that shows a kernel: the outermost of its layers that is not open, or the kernel itself.
  function boxOf(kernel, number, counts) {
    const names = parts(kernel);
    for (let i = 1; i <= names.length; i++) {
      const layer = names.slice(0, i).join(".");
      if (!opened.has(layer) && counts.get(layer) > 1) return { id: "layer " + layer, layer, label: names.slice(0, i).join(".") };
    }
    return { id: "kernel " + number, number, label: kernel.title };
  }

  const shortened = (text) => (text.length > 34 ? text.slice(0, 33) + "\u2026" : text);

  function drawGraph() {
    const entry = entries.find((each) => each.name === one("#graph-entry").value);
    const counts = new Map();
    for (const kernel of entry.kernels) {
      const names = parts(kernel);
      for (let i = 1; i <= names.length; i++) {
        const layer = names.slice(0, i).join(".");
        counts.set(layer, (counts.get(layer) || 0) + 1);
      }
    }
    const graph = new dagre.graphlib.Graph().setGraph({ rankdir: "TB", nodesep: 24, ranksep: 34, marginx: 12, marginy: 12 });
    graph.setDefaultEdgeLabel(() => ({}));
    const boxes = entry.kernels.map((kernel, number) => boxOf(kernel, number, counts));
    const written = new Map();
    entry.kernels.forEach((kernel, number) => {
      const box = boxes[number];
      const known = graph.node(box.id) || { ...box, share: 0, kernels: 0 };
      const share = known.share + kernel.share;
      const lines = box.layer ? [box.label] : [`${number} ${kernel.origin}`, box.label].map(shortened);
      const width = Math.max(110, 7 * Math.max(...lines.map((line) => line.length)) + 16, 6 * kernel.line.length + 110);
      const line = known.kernels && known.line !== kernel.line ? "" : kernel.line;
      graph.setNode(box.id, { ...known, share, kernels: known.kernels + 1, lines, line, width, height: 24 + 16 * lines.length });
      for (const name of kernel.reads) {
        for (const from of written.get(name) || []) if (from !== box.id) graph.setEdge(from, box.id);
      }
      for (const name of kernel.writes) written.set(name, new Set([...(written.get(name) || []), box.id]));
    });
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Kernels of ${entry.name}` });
    const head = svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0L8,4L0,8z", fill: "currentColor" }));
    picture.append(svg("defs", {}, head));
    for (const edge of graph.edges()) {
      const points = graph.edge(edge).points.map((point) => `${point.x},${point.y}`).join("L");
      picture.append(svg("path", { class: "edge", d: "M" + points, "marker-end": "url(#head)" }));
    }
    for (const id of graph.nodes()) {
      const node = graph.node(id);
      const share = `${node.share.toFixed(0)} %${node.line ? `, ${node.line}` : ""}`;
      const texts = [...node.lines.map((line) => ["", line]), ["note", node.layer ? `${node.kernels} kernels, ${share}` : share]];
      const [left, top] = [node.x - node.width / 2, node.y - node.height / 2];
      const element = svg("g", { class: node.layer ? "node layer" : "node", tabindex: 0, role: "button", transform: `translate(${left},${top})` },
        svg("title", {}, node.label),
        svg("rect", { width: node.width, height: node.height, rx: 5 }),
        ...texts.map(([kind, line], i) => svg("text", { x: 8, y: 17 + 16 * i, class: kind }, line)));
      const act = () => (node.layer ? toggle(node.layer) : show(entry.name, node.number));
      element.addEventListener("click", act);
      element.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          act();
        }
      });
      picture.append(element);
    }
    one("#graph .box").replaceChildren(picture);
    const first = graph.node(graph.nodes()[0]);
    one("#graph .box").scrollLeft = first.x - one("#graph .box").clientWidth / 2;
  }

  function toggle(layer) {
    opened.add(layer);
    drawGraph();
  }

  // Open the row of a kernel and move there.
  function show(entry, number) {
    const row = document.getElementById(`${entry}-${number}`);
    row.closest("details.entry").open = true;
    row.querySelector("details").open = true;
    row.scrollIntoView({ block: "center" });
  }

  if (one("#graph") && entries.length) {
    for (const entry of entries) one("#graph-entry").append(option(entry.name));
    one("#graph-entry").addEventListener("change", drawGraph);
    one("#graph-open").addEventListener("click", () => {
      for (const entry of entries) {
        for (const kernel of entry.kernels) parts(kernel).forEach((_, i, names) => opened.add(names.slice(0, i + 1).join(".")));
      }
      drawGraph();
    });
    one("#graph-close").addEventListener("click", () => {
      opened.clear();
      drawGraph();
    });
    drawGraph();
  }
  for (const dot of document.querySelectorAll("circle.kernel")) {
    const entry = dot.closest("details.entry").dataset.entry;
    dot.addEventListener("click", () => show(entry, dot.dataset.kernel));
  }

  // ----------------------------------------------------------------------------------------------------------- passes
  const states = []; // the text of each graph after each pass
  let state = {};
  for (const step of data.passes) {
    state = { ...state };
    for (const name of step.gone) delete state[name];
    for (const [name, lines] of Object.entries(step.graphs)) state[name] = lines.map((line) => data.lines[line]);
    states.push(state);
  }

  // What a line says without the numbers of its values, which change with every node that goes.
  const meaning = (line) => line.trim().replace(/\bv\d+\b/g, "v");

  function drawPass() {
    const number = Number(one("#pass").value);
    const step = data.passes[number];
    const chosen = one("#pass-graph").value;
    const names = Object.keys(states[number]);
    one("#pass-graph").replaceChildren(...names.map(option));
    const changed = Object.keys(step.graphs);
    const name = [chosen, "forward", changed[0]].find((each) => names.includes(each)) || names[0];
    one("#pass-graph").value = name;
    one("#pass-name").textContent = `${number + 1} of ${data.passes.length}: ${step.name}`;
    one("#pass-says").textContent = step.says;
    const before = (number && states[number - 1][name]) || [];
    const after = states[number][name] || [];
    const left = new Map();
    for (const line of before) left.set(meaning(line), (left.get(meaning(line)) || 0) + 1);
    const rows = after.map((line) => {
      const key = meaning(line);
      const isOld = left.get(key) > 0;
      if (isOld) left.set(key, left.get(key) - 1);
      return { line, isNew: before.length > 0 && !isOld };
    });
    const gone = before.filter((line) => {
      const key = meaning(line);
      if (!(left.get(key) > 0)) return false;
      left.set(key, left.get(key) - 1);
      return true;
    });
    const span = (text, kind) => Object.assign(document.createElement("span"), { className: kind, textContent: text + "\n" });
    one("#pass-text").replaceChildren(
      ...rows.map((row) => span(row.line, row.isNew ? "new" : "")),
      ...(gone.length ? [span("", ""), span("rewritten:", ""), ...gone.map((line) => span(line, "old"))] : []));
  }

  if (data.passes.length) {
    one("#pass").addEventListener("input", drawPass);
    one("#pass-graph").addEventListener("change", drawPass);
    drawPass();
  }
})();
