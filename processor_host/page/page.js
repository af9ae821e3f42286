// The status page: asks for status.json and draws it. Everything from there is put in as text, never as markup.
// Rows and chips are kept from one picture to the next, so that focus, scrolling and a reader's place stay.
"use strict";

const EVERY_MS = 1000;
const AGAIN_MAX_MS = 10000;
const TIMEOUT_MS = 5000;
const FRESH_MS = 3000;
const SPOKEN_MAX = 3;
const LEAST_SCALE_S = 10;
const STATES = ["owned", "asked", "free", "paused", "ended"];

const at = (id) => document.getElementById(id);
const lanes = new Map();
const chips = new Map();
const rows = new Map();
let known = null;
let paused = false;
let failures = 0;
let lastGood = null;
let timer = 0;

function make(tag, kind, ...children) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  node.append(...children);
  return node;
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function mark(node, kinds) {
  for (const [kind, is] of Object.entries(kinds)) node.classList.toggle(kind, is);
}

// Puts these nodes into the parent in this order, and moves only what is not there already.
function place(parent, nodes) {
  let next = parent.firstChild;
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function keep(map, keys) {
  const wanted = new Set(keys);
  for (const key of map.keys()) if (!wanted.has(key)) map.delete(key);
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 10) return value.toFixed(1) + " s";
  if (value < 120) return Math.round(value) + " s";
  if (value < 7200) return Math.round(value / 60) + " min";
  if (value < 172800) return Math.round(value / 3600) + " h";
  return Math.round(value / 86400) + " days";
}

function many(count, one) {
  return count + " " + one + (count === 1 ? "" : "s");
}

// The same host has the same colour on every page and after a restart.
function hue(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 360007;
  return (sum * 137) % 360;
}

function drawCounts(counts) {
  const shown = [["hosts", counts.hosts], ...STATES.map((state) => [state, counts[state]]), ["stalled", counts.stalled]];
  place(at("counts"), shown.map(([name, count]) => {
    let tile = document.querySelector(`#counts > [data-count="${name}"]`);
    if (!tile) {
      tile = make("div", "", make("dt", "", name), make("dd"));
      tile.dataset.count = name;
    }
    say(tile.lastChild, String(count));
    mark(tile, {
      bad: name === "stalled" && count > 0,
      warn: ["asked", "free", "paused"].includes(name) && count > 0,
    });
    return tile;
  }));
}

function isSilent(host) {
  return host.alive === false || (host.unchanged_s !== null && host.unchanged_s > host.duration_s * 0.6);
}

function factsOf(host) {
  const facts = [many(host.owned, "partition")];
  if (host.here) facts.push("this host");
  if (host.draining) facts.push("draining");
  if (host.capacity === 0) facts.push("takes none");
  if (isSilent(host)) facts.push("silent for " + seconds(host.unchanged_s));
  if (host.asks > 0) facts.push(host.asks + " asked for");
  return facts.join(" · ");
}

function laneOf(key) {
  let lane = lanes.get(key);
  if (!lane) {
    lane = make("li", "lane");
    lane.head = make("div", "head");
    lane.name = make("bdi");
    lane.facts = make("span", "facts");
    lane.link = make("a", "", "its page");
    lane.chips = make("ul", "chips");
    lane.head.append(make("h3", "", lane.name), lane.facts);
    lane.append(lane.head, lane.chips);
    lanes.set(key, lane);
  }
  return lane;
}

function chipOf(row, laneKey) {
  let chip = chips.get(row.partition);
  if (!chip) {
    chip = make("li", "chip");
    chip.name = make("bdi");
    chip.more = make("span");
    chip.append(chip.name, chip.more);
    chip.dataset.partition = row.partition;
    chip.lane = known ? null : laneKey;
    chips.set(row.partition, chip);
  }
  if (chip.lane !== laneKey) {
    chip.lane = laneKey;
    chip.classList.add("fresh");
    clearTimeout(chip.calm);
    chip.calm = setTimeout(() => chip.classList.remove("fresh"), FRESH_MS);
  }
  const more = [];
  if (row.state === "asked") more.push("→ " + (row.asker_host || "nobody"));
  if (row.state === "paused") more.push("paused");
  if (row.stalled_s !== null) more.push("stalled");
  say(chip.name, row.partition);
  say(chip.more, more.length ? " " + more.join(", ") : "");
  mark(chip, { asked: row.state === "asked", stalled: row.stalled_s !== null });
  chip.title = [row.partition, row.state, ...more].join(", ");
  chip.dataset.state = row.state;
  return chip;
}

function drawHosts(picture) {
  const open = picture.partitions.filter((row) => row.state !== "ended");
  const byOwner = new Map();
  for (const row of open) {
    const key = row.owner || "";
    if (!byOwner.has(key)) byOwner.set(key, []);
    byOwner.get(key).push(row);
  }
  const shown = picture.hosts.filter((host) => host.owned > 0 || host.capacity > 0).map((host) => {
    const lane = laneOf(host.session_id);
    lane.dataset.host = host.host_id;
    lane.style.setProperty("--hue", String(hue(host.host_id)));
    say(lane.name, host.host_id);
    say(lane.facts, factsOf(host));
    mark(lane, { silent: isSilent(host), draining: host.draining, here: host.here });
    if (host.url && !host.here) {
      if (lane.link.getAttribute("href") !== host.url) lane.link.setAttribute("href", host.url);
      lane.link.setAttribute("rel", "noopener noreferrer");
      lane.link.setAttribute("aria-label", "Page of " + host.host_id);
      if (!lane.link.parentNode) lane.head.append(lane.link);
    } else lane.link.remove();
    lane.chips.setAttribute("aria-label", "Partitions of " + host.host_id);
    place(lane.chips, (byOwner.get(host.session_id) || []).map((row) => chipOf(row, host.session_id)));
    return lane;
  });
  const left = byOwner.get("") || [];
  if (left.length) {
    const lane = laneOf("");
    lane.classList.add("nobody");
    say(lane.name, "Nobody");
    say(lane.facts, many(left.length, "partition"));
    lane.chips.setAttribute("aria-label", "Partitions that nobody owns");
    place(lane.chips, left.map((row) => chipOf(row, "")));
    shown.push(lane);
  }
  place(at("hosts"), shown);
  keep(lanes, [...picture.hosts.map((host) => host.session_id), ...(left.length ? [""] : [])]);
  keep(chips, open.map((row) => row.partition));
}

function rowOf(partition) {
  let row = rows.get(partition);
  if (!row) {
    row = make("tr");
    row.dataset.partition = partition;
    row.badge = make("span", "badge");
    row.stall = make("span", "stall");
    row.owner = make("bdi");
    row.fill = make("span", "fill");
    row.track = make("span", "track", row.fill);
    row.track.setAttribute("aria-hidden", "true");
    row.amount = make("span", "amount");
    row.home = make("a");
    row.home.setAttribute("rel", "noopener noreferrer");
    row.token = make("td", "token");
    const head = make("th", "", make("bdi", "", partition));
    head.scope = "row";
    row.append(
      head, make("td", "", row.badge, row.stall), make("td", "", row.owner),
      make("td", "lag", make("span", "gauge", row.track, row.amount)), row.token,
    );
    rows.set(partition, row);
  }
  return row;
}

// Only the owner measures the lag of a partition; of any other the row says on whose page it is.
function drawLag(row, data, scale, pages) {
  row.track.hidden = data.lag_s === null;
  row.fill.style.width = data.lag_s === null ? "0" : Math.min(100, 100 * data.lag_s / scale).toFixed(1) + "%";
  const page = data.lag_s === null ? pages.get(data.owner) : undefined;
  if (page === undefined) {
    row.home.remove();
    say(row.amount, data.lag_s === null ? "–" : seconds(data.lag_s));
    return;
  }
  if (row.home.getAttribute("href") !== page) row.home.setAttribute("href", page);
  say(row.home, "see " + data.host);
  row.home.setAttribute("aria-label", `Lag of ${data.partition}: on the page of ${data.host}`);
  if (row.home.parentNode !== row.amount) row.amount.replaceChildren(row.home);
}

function drawRow(data, scale, pages) {
  const row = rowOf(data.partition);
  const asker = data.state === "asked" ? " by " + (data.asker_host || "nobody") : "";
  row.className = data.stalled_s !== null ? "stalled" : "";
  row.badge.className = "badge " + data.state;
  say(row.badge, data.state + asker + (data.paused && data.state !== "paused" ? ", to be paused" : ""));
  const stall = data.stalled_s === null ? "" : "stalled for " + seconds(data.stalled_s);
  const failed = data.failed_in === null ? "" : "failing in " + data.failed_in;
  say(row.stall, [stall, failed, data.reason || ""].filter(Boolean).join("; "));
  say(row.owner, data.host || "nobody");
  mark(row.owner, { nobody: !data.host });
  row.title = data.partition + ", " + (data.host || "nobody");
  drawLag(row, data, scale, pages);
  say(row.token, String(data.token));
  row.dataset.state = data.state;
  row.dataset.owner = data.host || "";
  row.words = [data.partition, data.state, data.host || "nobody", stall].join(" ").toLowerCase();
  return row;
}

function drawRows(picture) {
  const scale = Math.max(LEAST_SCALE_S, ...picture.partitions.map((data) => data.lag_s || 0));
  say(at("scale"), "(bars to " + seconds(scale) + ")");
  const pages = new Map(picture.hosts.filter((host) => host.url && !host.here).map((host) => [host.session_id, host.url]));
  place(at("rows"), picture.partitions.map((data) => drawRow(data, scale, pages)));
  keep(rows, picture.partitions.map((data) => data.partition));
  at("left-out").hidden = picture.left_out === 0;
  say(at("left-out"), many(picture.left_out, "more partition") + " not listed; those that stall or move come first.");
  find();
}

function find() {
  const wanted = at("find").value.trim().toLowerCase();
  for (const row of rows.values()) row.hidden = wanted !== "" && !row.words.includes(wanted);
}

function changeText(change) {
  if (change.kind === "ended") return "ended on " + (change.before || "nobody");
  return (change.before || "nobody") + " → " + (change.after || "nobody");
}

const changeKey = (change) => JSON.stringify([change.partition, change.token, change.kind]);

function drawChanges(changes) {
  const list = at("changes");
  const kept = new Map([...list.children].map((item) => [item.dataset.key, item]));
  place(list, changes.map((change) => {
    const key = changeKey(change);
    let item = kept.get(key);
    if (!item) {
      item = make("li", "", make("strong", "", make("bdi", "", change.partition)),
        make("span", "", make("bdi", "", changeText(change))), make("span", "quiet"));
      item.dataset.key = key;
      item.dataset.partition = change.partition;
      item.title = change.partition + ": " + changeText(change);
    }
    say(item.lastChild, seconds(change.before_s) + " ago" + (change.how ? ", " + change.how : ""));
    return item;
  }));
  at("no-changes").hidden = changes.length > 0;
}

// For those who listen: what is new, a few sentences at most. Figures that only grow are not read out.
function speak(picture) {
  const now = {
    hosts: new Set(picture.hosts.map((host) => host.host_id)),
    silent: new Set(picture.hosts.filter(isSilent).map((host) => host.host_id)),
    stalled: new Set(picture.partitions.filter((row) => row.stalled_s !== null).map((row) => row.partition)),
    changes: new Set(picture.changes.map(changeKey)),
  };
  if (known) {
    const fresh = picture.changes.filter((change) => !known.changes.has(changeKey(change)));
    const news = [
      ...[...now.hosts].filter((name) => !known.hosts.has(name)).map((name) => `Host ${name} joined.`),
      ...[...known.hosts].filter((name) => !now.hosts.has(name)).map((name) => `Host ${name} is gone.`),
      ...[...now.silent].filter((name) => !known.silent.has(name)).map((name) => `Host ${name} is silent.`),
      ...[...now.stalled].filter((name) => !known.stalled.has(name)).map((name) => `Partition ${name} is stalled.`),
      ...fresh.map((change) => `Partition ${change.partition}: ${changeText(change).replace("→", "to")}.`),
    ];
    if (news.length) {
      const more = news.length - SPOKEN_MAX;
      say(at("news"), news.slice(0, SPOKEN_MAX).join(" ") + (more > 0 ? ` And ${more} more.` : ""));
    }
  }
  known = now;
}

function draw(picture) {
  document.title = picture.group + " · processor-host";
  say(at("group"), picture.group);
  const looked = picture.looked_before_s === null ? "not looked yet" : "looked " + seconds(picture.looked_before_s) + " ago";
  say(at("from"), `${picture.source}, as seen by host ${picture.host_id}, ${looked}`);
  drawCounts(picture.counts);
  drawHosts(picture);
  drawChanges(picture.changes);
  drawRows(picture);
  speak(picture);
}

async function update() {
  clearTimeout(timer);
  timer = 0;
  if (paused || document.hidden) return;
  let wait = EVERY_MS;
  try {
    const answer = await fetch("status.json", { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
    if (!answer.ok) throw new Error("status " + answer.status);
    const picture = await answer.json();
    if (!paused) draw(picture);
    failures = 0;
    lastGood = new Date();
    at("trouble").hidden = true;
    document.documentElement.dataset.pictures = String(Number(document.documentElement.dataset.pictures || 0) + 1);
  } catch (error) {
    failures += 1;
    wait = Math.min(AGAIN_MAX_MS, EVERY_MS * 2 ** Math.min(failures, 8));
    const since = lastGood ? "What you see is from " + lastGood.toLocaleTimeString() + "." : "Nothing was seen yet.";
    say(at("trouble"), "This host does not answer. " + since);
    at("trouble").hidden = false;
  }
  if (!timer) timer = setTimeout(update, wait);
}

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  if (!paused && !timer) update();
});
at("find").addEventListener("input", find);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !timer) update();
});
update();
