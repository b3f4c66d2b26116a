// What keeps a page up to date. Pages work without it.
// @ts-check

const PAUSE_MS = 1000;
const RETRY_MS = 5000;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let due;
let last = 0;
/** @type {EventSource | undefined} */
let source;
const main = document.getElementById("main");

/** Load this page again, and show what is new in it. */
function refresh() {
  due = undefined;
  if (isUsed()) return soon(PAUSE_MS);
  last = performance.now();
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  // Parsed by the browser as a document whose scripts do not run.
  request.responseType = "document";
  request.onloadend = () => {
    const now = request.responseXML?.getElementById("main");
    if (request.status === 200 && now) show(now, request.responseXML?.title ?? "");
    else if (!source) soon(RETRY_MS);
    if (now?.dataset.counting) soon();
  };
  request.send();
}

/** Whether somebody is typing, or has typed something that would be lost. */
function isUsed() {
  if (!main || main.querySelector("details.act[open]")) return true;
  if (document.activeElement?.matches("#main :is(input, textarea, select)")) return true;
  const typed = [...main.querySelectorAll("input:not([type=hidden]), textarea")].map((one) => /** @type {HTMLInputElement} */ (one));
  return typed.some((one) => one.value !== one.defaultValue || (one.checked ?? false) !== (one.defaultChecked ?? false));
}

/**
 * Show a newer main part, unless it is used.
 * @param {HTMLElement} now
 * @param {string} title
 */
function show(now, title) {
  if (!main || isUsed()) return soon(PAUSE_MS);
  const link = document.activeElement?.getAttribute("href");
  const opened = new Set([...main.querySelectorAll("details[open] > summary")].map(nameOf));
  const beside = main.querySelector(".beside")?.scrollTop ?? 0;
  main.replaceChildren(...now.childNodes);
  document.title = title;
  for (const one of main.querySelectorAll("summary"))
    if (opened.has(nameOf(one)) && one.parentElement instanceof HTMLDetailsElement) one.parentElement.open = true;
  const panel = main.querySelector(".beside");
  if (panel) panel.scrollTop = beside;
  if (link) [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === link)?.focus();
  count();
  if (!now.dataset.live) source?.close();
  else if (!source) follow(now.dataset);
}

/** @param {Element} summary */
const nameOf = (summary) => summary.textContent ?? "";

/**
 * Refresh soon, but not more often than once a pause.
 * @param {number} least
 */
function soon(least = 0) {
  due ??= setTimeout(refresh, Math.max(least, last + PAUSE_MS - performance.now()));
}

/**
 * Refresh with each event of a stream. A browser goes on by itself where a connection
 * ended; it gives up if the answer is an error, such as that of a proxy.
 * @param {DOMStringMap} about
 */
function follow(about) {
  const query = new URLSearchParams({ after: about.after || "end" });
  const stream = (source = new EventSource(`${about.live}?${query}`));
  for (const kind of (about.kinds ?? "").split(" ")) stream.addEventListener(kind, () => soon());
  stream.onerror = () => {
    if (stream.readyState !== EventSource.CLOSED) return;
    source = undefined;
    soon(RETRY_MS);
  };
}

/** Say how long it is until each time that something ends. */
function count() {
  for (const one of document.querySelectorAll(".left")) {
    const until = /** @type {HTMLTimeElement} */ (one.previousElementSibling).dateTime;
    const left = Math.max(0, Math.floor((Date.parse(until) - Date.now()) / 1000));
    const parts = [[Math.floor(left / 3600), "h"], [Math.floor(left / 60) % 60, "min"], [left % 60, "s"]];
    const text = parts.filter(([n]) => n).map(([n, unit]) => `${n} ${unit}`).join(" ");
    one.textContent = left ? `, in ${text}` : ", which is now";
  }
}

if (main?.dataset.live) follow(main.dataset);
// What counts on a page without events of its own.
if (main?.dataset.counting) soon();
count();
setInterval(count, 1000);

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
