// Makes parts of the page. Text goes in as text, with every character to be seen.

import * as t from "./text.js";

export const at = (id) => document.getElementById(id);

export function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "on") made.addEventListener(tag === "form" ? "submit" : "click", value);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name.startsWith("aria-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.map((one) => (one instanceof Node ? one : t.visible(one))));
  return made;
}

export const text = (value) => el("pre", { tabIndex: 0, textContent: t.pretty(value) });

// Keys let the focus stay where it was when a list is made anew.
export const keyed = (key) => ({ data: { key } });

export function table(caption, columns, rows) {
  const body = rows.map((cells) =>
    el(
      "tr",
      {},
      ...cells.map((cell, n) => el("td", { data: { label: columns[n] } }, el("div", {}, ...[cell].flat()))),
    ),
  );
  const head = el("tr", {}, ...columns.map((one) => el("th", { scope: "col" }, one)));
  return el("table", { "aria-label": caption }, el("thead", {}, head), el("tbody", {}, ...body));
}

export function facts(pairs) {
  return el("dl", {}, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// Ask something in a dialog, which stays until `act` did what was typed.
export function dialog(title, action, act, fields = [], ...about) {
  const box = at("dialog");
  const inputs = fields.map((one) => field(one));
  const wrong = el("p", { className: "bad", role: "alert" });
  const done = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    try {
      await act(Object.fromEntries(inputs.map(({ lastChild: one }) => [one.name, one.value])));
      // Somebody may have gone back, and opened another.
      if (box.firstChild === form) box.close();
    } catch (error) {
      wrong.textContent = error.message;
    }
    go.disabled = false;
  };
  const back = el("button", { type: "button", on: () => box.close() }, "Back");
  const go = el("button", { type: "submit", className: "main" }, action);
  const form = el(
    "form",
    { on: done, autocomplete: "off" },
    el("h2", { id: "dialog-title" }, title),
    ...about,
    ...inputs,
    wrong,
    el("div", { className: "row" }, back, go),
  );
  box.replaceChildren(form);
  box.showModal();
}

export function field({ name, label, kind = "input", choices = [], ...options }) {
  const input = el(kind, { name, ...options }, ...choices.map((one) => el("option", { value: one }, one || "as it goes without saying")));
  return el("label", {}, label, input);
}
