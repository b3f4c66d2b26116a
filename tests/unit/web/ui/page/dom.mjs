// As much of a browser as the page needs; markup is not among it.

export class Node {}

class Text extends Node {
  constructor(text) {
    super();
    this.textContent = text;
  }
}

class Element extends Node {
  dataset = {};
  attributes = {};
  children = [];
  heard = {};
  open = false;
  #value;

  constructor(tag) {
    super();
    this.tagName = tag;
  }
  append(...nodes) {
    for (const one of nodes) this.children.push(one instanceof Node ? one : new Text(String(one)));
  }
  replaceChildren(...nodes) {
    this.children = [];
    this.append(...nodes);
  }
  get textContent() {
    return this.children.map((one) => one.textContent).join("");
  }
  set textContent(text) {
    this.replaceChildren(text);
  }
  get value() {
    return this.#value ?? "";
  }
  set value(value) {
    this.#value = value;
  }
  set innerHTML(_) {
    throw new Error("markup is made of text");
  }
  get firstChild() {
    return this.children[0];
  }
  get lastChild() {
    return this.children.at(-1);
  }
  get elements() {
    return Object.fromEntries(all(this).filter((one) => one.name).map((one) => [one.name, one]));
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  addEventListener(name, heard) {
    this.heard[name] = heard;
  }
  querySelectorAll() {
    return all(this).filter((one) => "key" in one.dataset);
  }
  focus() {
    document.activeElement = this;
  }
  showModal() {
    this.open = true;
  }
  close() {
    this.open = false;
  }
  remove() {}
}

// Return every element below one.
export function all(node) {
  return (node.children ?? [])
    .filter((one) => one instanceof Element)
    .flatMap((one) => [one, ...all(one)]);
}

const named = new Map();

// Put a browser where the page looks for one; `answer` stands in for the host.
export function browser(answer) {
  const kept = new Map();
  const heard = {};
  globalThis.Node = Node;
  globalThis.document = {
    createElement: (tag) => new Element(tag),
    getElementById: (id) => named.get(id) ?? named.set(id, new Element("div")).get(id),
    hidden: false,
    activeElement: null,
  };
  globalThis.sessionStorage = {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, value),
    removeItem: (key) => kept.delete(key),
  };
  globalThis.location = { hash: "" };
  globalThis.addEventListener = (name, listener) => (heard[name] = listener);
  globalThis.setInterval = (listener) => (heard.interval = listener);
  globalThis.fetch = async (path, options) => answer(path, options);
  return {
    heard,
    at: (id) => document.getElementById(id),
    button: (label, within = "main") =>
      all(document.getElementById(within)).find((one) => one.tagName === "button" && one.textContent === label),
    go: async (hash) => {
      location.hash = `#${hash}`;
      heard.hashchange();
      await settled();
    },
  };
}

export async function settled() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

export const press = async (one, kind = "click") => {
  one.heard[kind]({ preventDefault() {}, target: one });
  await settled();
};
