// Asking the server. A question that failed says so at the top of the page and is asked again later.
const state = document.getElementById("link-state");

async function ask(path, headers = {}) {
  let answer;
  try {
    const early = window.plexusEarly;
    window.plexusEarly = null;
    answer = await (early && early.path === path ? early.answer : fetch(path, { headers }));
  } catch {
    state.textContent = "no connection to the dashboard";
    state.className = "lost";
    throw new Error("The dashboard does not answer. Is `plexus dashboard` still running?");
  }
  state.textContent = "";
  state.className = "";
  if (answer.status === 304) return null;
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error || `error ${answer.status}`), { status: answer.status });
  return { body, tag: answer.headers.get("etag") };
}

const query = (values) => new URLSearchParams(values).toString();
export const runs = async () => (await ask("/api/runs")).body;
export const run = (id, tag = null) => ask(`/api/run?${query({ id })}`, tag ? { "If-None-Match": tag } : {});
export const compared = async (ids) => (await ask(`/api/compare?${query(ids.map((id) => ["run", id]))}`)).body;
export const windowOf = async (id, from, to) => (await ask(`/api/window?${query({ id, from, to })}`)).body;
export const node = async (id, number) => (await ask(`/api/node?${query({ id, node: number })}`)).body;
export const land = async () => (await ask("/vendor/land.json")).body;
