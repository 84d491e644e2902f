"use strict";
// Everything that comes from a website is put in with textContent: nothing is parsed as HTML.
const $ = id => document.getElementById(id);
const el = (tag, text, cls) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (cls) made.className = cls;
  return made;
};
const n = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const BOUNDS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, Infinity];
const CLASSES = ["1xx", "2xx", "3xx", "4xx", "5xx", "failed"];
// Title, index in a row (null in the row: no limit), kind.
const COLUMNS = [
  ["scope", 0, "left"], ["sends", 1], ["rate/s", 2], ["allowed/s", 3, "wide"], ["delay s", 4], ["slots", 5],
  ["in flight", 6, "wide"], ["queued", 7], ["limited by", 8, "left"], ["next send s", 10], ["ends in", 18],
  ["because of", 9, "left src"], ["responses", 15, "left wide"], ["latency 50 % / 95 %", 17, "wide"],
  ["bytes", 16, "wide"], ["triggers", 11], ["steps", 12], ["hints", 13, "wide"], ["last hint", 14, "left src wide"],
];
const NAMES = ["scope", "sends", "rate", "allowed", "delay", "concurrency", "in_flight", "queued", "limit", "source",
  "next_send", "triggers", "steps", "hints", "last_hint", "statuses", "size", "latency", "seconds", "reason"];
let sort = "sends", down = true, offset = 0, total = 0, status_ = null, crawl = null;
const series = { rate: [[], []], queued: [[], []], memory: [[], []] };
const plots = {};

function duration(s) {
  if (s === null) return "never";
  const days = Math.floor(s / 86400), h = Math.floor(s % 86400 / 3600), m = Math.floor(s % 3600 / 60);
  if (days) return `${days} d ${h} h`;
  return h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(s % 60)} s` : `${n.format(s)} s`;
}
function quantile(counts, part) {
  const wanted = part * counts.reduce((a, b) => a + b, 0);
  let seen = 0;
  for (const [i, count] of counts.entries()) {
    seen += count;
    if (seen && seen >= wanted) return BOUNDS[i] === Infinity ? "> 60" : `${BOUNDS[i]}`;
  }
  return "";
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function makePlots() {
  for (const key of Object.keys(series)) {
    const box = $("p-" + key);
    box.replaceChildren();
    const two = v => String(Math.floor(v) % 60).padStart(2, "0");
    const hours = v => v >= 3600 ? `${Math.floor(v / 3600)}:${two(v / 60)} h` : `${Math.floor(v / 60)}:${two(v)}`;
    plots[key] = new uPlot({
      width: box.clientWidth || 300, height: 110, legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { stroke: css("--dim"), grid: { show: false }, size: 24, values: (u, v) => v.map(hours) },
        { stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, size: 60, values: (u, v) => v.map(x => n.format(x)) },
      ],
      series: [{}, { stroke: css("--accent"), width: 1.5, fill: css("--accent") + "22", points: { show: false } }],
    }, series[key], box);
  }
}
function figure(title, value, note, bad, cls) {
  const box = el("div", undefined, cls), dd = el("dd", value, bad ? "bad" : "");
  if (note) dd.append(el("small", note));
  box.append(el("dt", title), dd);
  return box;
}
function bars(id, rows) {
  const most = Math.max(1e-9, ...rows.map(row => row[1] ?? Infinity).filter(Number.isFinite));
  $(id).replaceChildren(...rows.map(([name, value, text]) => {
    const li = el("li"), meter = el("meter");
    meter.max = most;
    meter.value = value ?? most;
    meter.setAttribute("aria-label", `${name}: ${text}`);
    li.append(el("span", name), meter, el("span", text, "num"));
    return li;
  }));
  if (!rows.length) $(id).append(el("li", "nothing is pending"));
}
const listed = counts => Object.entries(counts).map(([k, v]) => `${k}: ${n.format(v)}`).join(", ");
function show(s) {
  status_ = s;
  $("spider").textContent = s.spider;
  document.title = `${n.format(s.pages)} pages · ${s.spider} · trawl`;
  const known = { running: "running", paused: "paused: nothing is sent" }[s.state];
  const words = known || (s.state.startsWith("no ") || s.state === "unknown" ? s.state : `ending: ${s.state}`);
  if ($("state").textContent !== words) $("state").textContent = words;
  $("pause").textContent = s.state === "paused" ? "Resume" : "Pause";
  const [now, minute, whole] = s.rates.pages, h = s.health, e = s.estimate;
  $("figures").replaceChildren(
    figure("pages", n.format(s.pages), `${n.format(now)}/s now, ${n.format(minute)}/s in 1 min, ${n.format(whole)}/s in all`),
    figure("items", n.format(s.items), listed(s.item_types)),
    figure("queued", n.format(s.queued), `${n.format(s.held)} wait for a limit`),
    figure("in flight", n.format(s.in_flight), `${h.callbacks} ${h.callbacks === 1 ? "callback" : "callbacks"}`),
    figure("errors", n.format(s.errors), "", s.errors > 0),
    figure("running for", duration(s.at)),
    figure("pending ends in", e ? duration(e.seconds) : "nothing is pending", e ? [e.scope, e.reason].filter(Boolean).join(": ") : "", false, "two"),
    figure("statuses", listed(s.statuses) || "no response yet", "", false, "two text"),
    figure("memory", `${n.format(h.memory / 1048576)} MiB`, h.backlog ? `${n.format(h.backlog / 1024)} KiB for the feeds` : ""),
    figure("loop late by", `${n.format(h.lateness * 1000)} ms`, `${n.format(h.scopes)} scopes`, h.lateness > 0.05));
  for (const [key, value] of [["rate", now], ["queued", s.queued], ["memory", h.memory / 1048576]]) {
    const points = series[key];
    points[0].push(Math.round(s.at));
    points[1].push(value);
    if (points[0].length > 900) { points[0].shift(); points[1].shift(); }
    plots[key].setData(points);
  }
  // While the crawl is paused, the queues still name limits that do not matter now.
  const limits = Object.entries(s.state === "paused" ? { paused: s.queued } : s.limits).sort((a, b) => b[1] - a[1]);
  bars("limits", limits.map(([name, count]) => [name.replaceAll("_", " "), count, n.format(count)]));
  $("waiting").replaceChildren(...s.waiting.map(g => el("li", `${n.format(g.count)}: ${g.words}`)));
  bars("ends", e ? e.scopes.map(x => [x.scope, x.seconds, `${duration(x.seconds)} (${n.format(x.pending)})`]) : []);
  showErrors(s.last_errors);
}
// Elements that may have the focus stay in the page, because a new element would not have it.
function showErrors(errors) {
  const known = new Map([...$("errors").children].map(each => [each.dataset.kind, each]));
  for (const error of errors) {
    const details = known.get(error.kind) || el("details"), time = new Date(error.at * 1000).toLocaleTimeString();
    if (!known.delete(error.kind)) {
      details.dataset.kind = error.kind;
      details.append(el("summary"), el("p"), el("pre"));
      $("errors").append(details);
    }
    const texts = [`${error.kind}, ${n.format(error.count)} times, last at ${time}`, error.message, error.traceback];
    texts.forEach((text, i) => { details.children[i].textContent = text; });
  }
  for (const gone of known.values()) gone.remove();
}
function cell(row, index) {
  const value = row[index];
  if (index === 15) return value.map((v, i) => v ? `${CLASSES[i]}: ${n.format(v)}` : "").filter(Boolean).join(", ");
  if (index === 17) return value.length ? `${quantile(value, 0.5)} / ${quantile(value, 0.95)} s` : "";
  if (index === 18) return row[7] ? duration(value) : "";
  if (index === 10) return value ? n.format(value) : value === null ? "a release" : "";
  if (value === null) return "any";
  return typeof value === "number" ? n.format(value) : value;
}
function showRows(table) {
  total = table.total;
  const had = document.activeElement;
  $("prev").disabled = offset === 0;
  $("next").disabled = offset + 100 >= total;
  if (had.disabled) $(had.id === "prev" ? "next" : "prev").focus();
  $("count").textContent = table.rows.length
    ? `${n.format(total)}, rows ${table.offset + 1} to ${table.offset + table.rows.length}` : "none";
  const body = $("rows");
  table.rows.forEach((row, i) => {
    let tr = body.rows[i];
    if (!tr) {
      tr = body.insertRow();
      for (const [, , kind] of COLUMNS) tr.insertCell().className = kind || "";
    }
    COLUMNS.forEach(([, index], j) => {
      const text = cell(row, index), td = tr.cells[j];
      if (td.textContent !== text) { td.textContent = text; if (index === 9 || index === 14) td.title = text; }
    });
  });
  while (body.rows.length > table.rows.length) body.deleteRow(-1);
}
const of = (path, more) => {
  const query = new URLSearchParams({ ...more, ...(crawl === null ? {} : { crawl }) });
  return `${path}?${query}`;
};
let source = null, later = 0;
function open_() {
  if (source) source.close();
  source = new EventSource(of("events", { sort, down: down ? 1 : 0, text: $("text").value, offset }));
  source.onmessage = event => {
    const [s, table, items, notes] = JSON.parse(event.data);
    show(s);
    $("notes").replaceChildren(...notes.map(note => el("li", note)));
    showRows(table);
    $("items").replaceChildren(...items.reverse().map(item => el("li", item)));
  };
  source.onerror = () => { $("state").textContent = "no connection: the crawl has ended, or can't be reached"; };
}
function table() { clearTimeout(later); later = setTimeout(open_, 150); }
for (const [, index, kind] of COLUMNS) {
  const th = el("th", undefined, kind || ""), button = el("button"), name = NAMES[index];
  th.scope = "col";
  button.type = "button";
  button.onclick = () => {
    if (sort === name) down = !down; else { sort = name; down = index !== 0; }
    offset = 0;
    headRow();
    table();
  };
  th.append(button);
  $("head").append(th);
}
function headRow() {
  COLUMNS.forEach(([title, index], i) => {
    const th = $("head").cells[i], is = NAMES[index] === sort;
    th.setAttribute("aria-sort", is ? (down ? "descending" : "ascending") : "none");
    th.firstChild.textContent = title + (is ? (down ? " ↓" : " ↑") : "");
  });
}
async function post(path, order) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(of(path), { method: "POST", headers, body: JSON.stringify(order) });
  return response.json();
}
function sure(text) {
  return new Promise(done => {
    const dialog = $("ask");
    $("asktext").textContent = text;
    dialog.returnValue = "no";
    dialog.onclose = () => done(dialog.returnValue === "yes");
    dialog.showModal();
  });
}
async function steer(order) {
  const before = await post("preview", order);
  if (before.error) { $("done").textContent = before.error; return; }
  if (!await sure(`${before.effect}.`)) return;
  const after = await post("order", order);
  $("done").textContent = after.error || after.effect;
}
function value(text) { try { return JSON.parse(text); } catch { return text; } }
function form(id, order) { $(id).onsubmit = event => { event.preventDefault(); steer(order()); }; }
$("pause").onclick = () => steer({ order: status_ && status_.state === "paused" ? "resume" : "pause" });
$("stop").onclick = () => steer({ order: "stop" });
form("setform", () => ({
  order: "set", scope: $("setscope").value,
  limits: Object.fromEntries($("setlimits").value.split(/\s+/).filter(Boolean).map(each => {
    const [key, ...rest] = each.split("=");
    return [key, value(rest.join("="))];
  })),
}));
form("addform", () => ({ order: "add", urls: [$("addurl").value.trim()] }));
form("dropform", () => ({ order: "drop", host: $("drophost").value.trim() }));
$("whyform").onsubmit = async event => {
  event.preventDefault();
  const said = await (await fetch(of("why", { of: $("whyof").value.trim() }))).json();
  $("why").textContent = said.why || said.error;
  $("host").replaceChildren(...(said.host || []).map(line => el("li", line)));
};
$("find").onsubmit = event => event.preventDefault();
$("text").oninput = () => { offset = 0; table(); };
$("prev").onclick = () => { offset = Math.max(0, offset - 100); table(); };
$("next").onclick = () => { if (offset + 100 < total) { offset += 100; table(); } };
addEventListener("keydown", event => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || $("ask").open) return;
  const action = { p: () => $("pause").click(), w: () => $("whyof").focus(), "/": () => $("text").focus() }[event.key];
  if (action) { event.preventDefault(); action(); }
});
// A browser does not scroll to an element of which it shows a part.
addEventListener("focusin", event => event.target.scrollIntoView({ block: "nearest", inline: "nearest" }));
$("crawl").onchange = () => { crawl = $("crawl").value; for (const s of Object.values(series)) { s[0] = []; s[1] = []; } makePlots(); open_(); };
async function start() {
  const names = await (await fetch("crawls")).json();
  $("others").hidden = names.length < 2;
  $("crawl").replaceChildren(...names.map(name => { const o = el("option", name); o.value = name; return o; }));
  if (names.length > 1) crawl = names[0];
  open_();
}
headRow();
makePlots();
addEventListener("resize", makePlots);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", makePlots);
start();
