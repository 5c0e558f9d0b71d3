// Making elements. Text is always text: nothing of a run is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  const node = tag === "svg" || tag === "path" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((each) => each !== null && each !== undefined && each !== false));
}

export function card(title, { note = null, tools = null } = {}, ...body) {
  const id = `h-${Math.random().toString(36).slice(2, 9)}`;
  return h("section", { class: "card", "aria-labelledby": id },
    h("header", {}, h("h2", { id }, title), note && h("p", {}, note), tools && h("div", { class: "tools push" }, tools)),
    body);
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function select(label, options, value, onchange) {
  const box = h("select", { "aria-label": label, onchange: () => onchange(box.value) },
    options.map(([key, text]) => h("option", { value: key }, text)));
  box.value = value;
  return box;
}
