// What keeps a page up to date. Pages work without it.
// @ts-check

const PAUSE_MS = 1000;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let due;
let last = 0;

/** Load this page again, and show what is new in it. */
function refresh() {
  due = undefined;
  last = performance.now();
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  // Parsed by the browser as a document whose scripts do not run.
  request.responseType = "document";
  request.onload = () => {
    const now = request.responseXML?.getElementById("main");
    const was = document.getElementById("main");
    if (request.status === 200 && now && was) show(was, now, request.responseXML?.title ?? "");
    if (now?.dataset.counting) soon();
  };
  request.send();
}

/**
 * Show a newer main part, unless somebody is typing.
 * @param {HTMLElement} was
 * @param {HTMLElement} now
 * @param {string} title
 */
function show(was, now, title) {
  const active = document.activeElement;
  if (was.querySelector("details.act[open]") || (active && was.contains(active) && active.matches("input, textarea, select"))) return;
  const link = active?.getAttribute("href");
  const opened = new Set([...was.querySelectorAll("details[open] > summary")].map(nameOf));
  const beside = was.querySelector(".beside")?.scrollTop ?? 0;
  was.replaceChildren(...now.childNodes);
  document.title = title;
  for (const one of was.querySelectorAll("summary"))
    if (opened.has(nameOf(one)) && one.parentElement instanceof HTMLDetailsElement) one.parentElement.open = true;
  const panel = was.querySelector(".beside");
  if (panel) panel.scrollTop = beside;
  if (link) [...was.querySelectorAll("a")].find((one) => one.getAttribute("href") === link)?.focus();
  if (!now.dataset.live) source?.close();
}

/** @param {Element} summary */
const nameOf = (summary) => summary.textContent ?? "";

/** Refresh soon, but not more often than once a pause. */
function soon() {
  due ??= setTimeout(refresh, Math.max(0, last + PAUSE_MS - performance.now()));
}

const main = document.getElementById("main");
/** @type {EventSource | undefined} */
let source;
if (main?.dataset.live) {
  const query = new URLSearchParams({ after: main.dataset.after || "end" });
  source = new EventSource(`${main.dataset.live}?${query}`);
  for (const kind of (main.dataset.kinds ?? "").split(" ")) source.addEventListener(kind, soon);
}

// What counts on a page without events of its own.
if (main?.dataset.counting) soon();

// j and k step through rows, / goes to the first filter, i to the inbox.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target instanceof Element && event.target.matches("input, textarea, select")) return;
  if (event.key === "/") {
    /** @type {HTMLElement | null} */ (document.querySelector("[role=search] input"))?.focus();
    event.preventDefault();
  } else if (event.key === "i") location.assign("/ui/inbox");
  else if (event.key === "j" || event.key === "k") {
    const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".timeline a, td[data-label=Run] a")]);
    const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const chosen = at < 0 ? rows.findIndex((one) => one.closest("[aria-current]")) : at;
    rows[Math.max(0, Math.min(rows.length - 1, chosen + (event.key === "j" ? 1 : -1)))]?.focus();
  }
});
