// The script of craftcore web. Everything works without it; it adds updates, the reader's zone, keys and a theme.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, className, text) => Object.assign(document.createElement(tag), { className, textContent: text });

  // Moments in the reader's zone. Without script they are UTC, which stays in the title.
  const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const timeOnly = new Intl.DateTimeFormat(undefined, clock);
  const sameYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", ...clock });
  const dated = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric", ...clock });

  function localize(root) {
    const today = new Date();
    for (const text of all("text[data-at]", root)) {
      text.textContent = timeOnly.format(new Date(text.dataset.at * 1000)).slice(0, 5);
    }
    for (const element of all("time[datetime]:not([data-zone]):not([title])", root)) {
      const at = new Date(element.dateTime);
      if (isNaN(at)) continue;
      const form = at.toDateString() === today.toDateString() ? timeOnly
        : at.getFullYear() === today.getFullYear() ? sameYear : dated;
      element.title = element.textContent;
      element.textContent = form.format(at);
    }
  }

  // Live fragments: one connection a tab, closed while the tab is hidden.
  const pending = new Map(); // element -> { html, line }: a change that is not shown yet
  let source = null;
  let again = 0;

  const parts = () => all("[data-live]");

  function isBusy(element) {
    const selection = getSelection();
    const selected = selection && !selection.isCollapsed && selection.rangeCount
      && selection.getRangeAt(0).intersectsNode(element);
    const focused = element !== document.activeElement && element.contains(document.activeElement);
    return selected || focused || $("details[open], form", element) !== null;
  }

  function show(element, html) {
    pending.get(element)?.line.remove();
    pending.delete(element);
    element.innerHTML = html; // from our own server, which escapes every value
    localize(element);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    element.style.opacity = 0.4;
    requestAnimationFrame(() => { element.style.opacity = ""; });
  }

  const words = (element) => element.textContent.replace(/\s+/g, " ").trim();

  function receive(element, html) {
    if (!isBusy(element)) return show(element, html);
    const fresh = make("div", "", "");
    fresh.innerHTML = html;
    localize(fresh);
    if (words(fresh) === words(element)) return; // nothing that can be read has changed
    const known = pending.get(element);
    if (known) return void (known.html = html);
    const line = make("p", "changed", "");
    line.setAttribute("role", "status");
    const button = make("button", "", "changed: show (u)");
    button.type = "button";
    button.onclick = () => showPending(element);
    line.append(button);
    element.before(line);
    pending.set(element, { html, line });
  }

  function showPending(element) {
    const { html } = pending.get(element);
    const hadFocus = element.contains(document.activeElement) || pending.get(element).line.contains(document.activeElement);
    show(element, html);
    if (hadFocus) { // the place of the focus is gone; the next Tab goes on from here
      element.tabIndex = -1;
      element.focus({ preventScroll: true });
    }
  }

  function tell(text) {
    let line = $("#connection");
    if (!text) return line?.remove();
    if (!line) {
      line = make("p", "changed", "");
      line.id = "connection";
      $("header").append(line);
    }
    line.textContent = text;
  }

  function connect() {
    const topics = [...new Set(parts().map((element) => element.dataset.live))];
    if (source || !topics.length || document.hidden) return;
    source = new EventSource("/live?topic=" + topics.join(","));
    source.onopen = () => tell("");
    source.onerror = () => {
      tell("not connected: shown as it was at " + timeOnly.format(new Date()));
      if (source && source.readyState === EventSource.CLOSED) { // refused: full, or logged out
        disconnect();
        again = setTimeout(connect, 30000 + Math.random() * 30000);
      }
    };
    for (const topic of topics) {
      source.addEventListener(topic, (event) => {
        for (const element of parts()) if (element.dataset.live === topic) receive(element, event.data);
      });
    }
  }

  function disconnect() {
    clearTimeout(again);
    source?.close();
    source = null;
  }

  // Keys. None is taken while something is typed, or with Ctrl, Alt or Meta.
  const places = { i: "/", n: "/now", t: "/tasks", s: "/schedules", d: "/dead" };
  const help = [
    ["/", "find"], ["g i", "inbox"], ["g n", "now"], ["g t", "tasks"], ["g s", "schedules"], ["g d", "dead letters"],
    ["j k", "next and previous row"], ["u", "show what changed"], ["?", "this help"],
  ];
  let goes = 0; // until when the key after g counts

  function move(step) {
    const rows = all("main tbody tr, main article, main li").map((row) => $("a, button, summary", row)).filter(Boolean);
    const here = rows.findIndex((link) => link.closest("tr, article, li").contains(document.activeElement));
    const next = here < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + step));
    rows[next]?.focus();
  }

  function toggleHelp() {
    let dialog = $("#keys");
    if (dialog?.open) return dialog.close();
    if (!dialog) {
      dialog = make("dialog", "", "");
      dialog.id = "keys";
      dialog.append(make("h2", "", "Keys"));
      const list = make("dl", "", "");
      for (const [key, what] of help) list.append(make("dt", "", key), make("dd", "", what));
      const close = make("button", "", "close");
      close.onclick = () => dialog.close();
      dialog.append(list, close);
      document.body.append(dialog);
    }
    dialog.showModal();
  }

  function onKey(event) {
    const typed = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typed || event.ctrlKey || event.altKey || event.metaKey) return;
    const key = event.key;
    const went = goes > event.timeStamp;
    goes = 0;
    if (went && places[key]) location.assign(places[key]);
    else if (key === "g") goes = event.timeStamp + 1500;
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "u") [...pending.keys()].forEach(showPending);
    else if (key === "?") toggleHelp();
    else if (key === "/") $("input[name=q]")?.focus();
    else return;
    event.preventDefault();
  }

  // The theme: as the system says, until the reader chooses.
  function stored(value) {
    try {
      if (value === undefined) return localStorage.getItem("theme");
      localStorage.setItem("theme", value);
    } catch { /* storage is off: the choice holds for this page */ }
    return value;
  }

  function addThemeSwitch() {
    const isDark = () => (document.documentElement.dataset.theme
      || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const button = make("button", "theme", "");
    button.type = "button";
    const name = () => { button.textContent = isDark() ? "light theme" : "dark theme"; };
    button.onclick = () => {
      document.documentElement.dataset.theme = stored(isDark() ? "light" : "dark");
      name();
    };
    name();
    $("footer")?.append(button);
  }

  const theme = stored();
  if (theme) document.documentElement.dataset.theme = theme;
  addThemeSwitch();
  localize(document);
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  connect();
})();
