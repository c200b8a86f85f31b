"use strict";
// Uses every control of a report, and leaves what happened as JSON in an element "walked" of the page around it.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const used = new Set();
  const found = { entries: [], passes: new Set(), changed: 0, graphs: 0, rows: 0, dots: 0 };
  const nodes = () => all("#graph .node").length;

  // Choose each option of a list or each value of a slider.
  function choose(control, value) {
    used.add(control.id);
    control.value = value;
    control.dispatchEvent(new Event(control.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
  }
  function press(button) {
    used.add(button.id);
    button.click();
  }
  for (const details of all("details")) details.open = true;
  if (one("#graph")) {
    const options = all("#graph-entry option").map((option) => option.value);
    for (const entry of options) {
      choose(one("#graph-entry"), entry);
      const closed = nodes();
      press(one("#graph-open"));
      const open = nodes();
      press(one("#graph-close"));
      const layer = one("#graph .node.layer");
      if (layer) layer.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      found.entries.push({ entry, closed, open, one: nodes(), edges: all("#graph .edge").length });
    }
    press(one("#graph-open"));
    for (const details of all("details")) details.open = false;
    for (const node of all("#graph .node:not(.layer)")) node.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    found.rows = all("tr details[open]").length;
    for (const dot of all("circle.kernel")) {
      dot.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      found.dots += 1;
    }
  }
  if (one("#pass")) {
    for (let i = 0; i <= Number(one("#pass").max); i++) {
      choose(one("#pass"), i);
      found.passes.add(one("#pass-name").textContent);
      for (const graph of all("#pass-graph option").map((option) => option.value)) {
        choose(one("#pass-graph"), graph);
        found.graphs += 1;
        found.changed += all("#pass-text .new, #pass-text .old").length;
      }
    }
  }
  const controls = all("button, select, input").map((control) => control.id);
  const result = {
    ...found,
    passes: [...found.passes],
    unused: controls.filter((id) => !used.has(id)),
    links: all("a[href^='#']").filter((link) => !document.getElementById(link.hash.slice(1))).map((link) => link.hash),
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    width: window.innerWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    errors: window.walkedErrors,
  };
  const told = Object.assign(parent.document.createElement("pre"), { id: "walked", textContent: JSON.stringify(result) });
  parent.document.body.append(told);
})();
