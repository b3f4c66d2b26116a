// Asks the control API, with the token of this tab.

import * as t from "./text.js";

export const TOKEN = "caxton.token";

class Problem extends Error {
  constructor(status, document) {
    super(t.visible(t.words(status, document)));
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (method !== "GET") headers["content-type"] = "application/json";
  const answer = await fetch(`/api/v1${path}`, {
    method,
    headers,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit",
    redirect: "error",
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  let problem = null;
  try {
    problem = JSON.parse(text);
  } catch {
    // Something between here and the host answered.
  }
  throw new Problem(answer.status, problem);
}

export async function get(path, options) {
  return t.parse(await (await ask(path, options)).text());
}

export const post = (path, body, method = "POST") => get(path, { method, body });
export const part = encodeURIComponent;
