// What pages do beyond links and forms: times in the viewer's zone, the choice of colours, shortcuts, and a refresh that
// leaves alone what somebody is working on. It writes text only, never markup.
(() => {
  "use strict";
  const root = document.documentElement;
  const kept = {
    get(name) { try { return localStorage.getItem("jobqueue-" + name) ?? ""; } catch { return ""; } },
    set(name, value) { try { localStorage.setItem("jobqueue-" + name, value); } catch { /* it is forgotten then */ } },
  };
  const dress = () => {
    const scheme = kept.get("scheme");
    if (scheme) root.dataset.scheme = scheme;
    else delete root.dataset.scheme;
  };
  dress();  // before the page is drawn

  // Times. The server writes UTC, which stays where there is no JavaScript.
  const whole = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    timeZoneName: "short", hourCycle: "h23",
  });
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short", hourCycle: "h23" });
  const day = new Intl.DateTimeFormat(undefined, { day: "2-digit", month: "short" });
  const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const localise = (part) => {
    const today = new Date().toDateString();
    for (const time of part.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!isNaN(at)) time.textContent = (at.toDateString() === today ? clock : whole).format(at);
    }
    for (const mark of part.querySelectorAll("text[data-at]")) {
      const at = new Date(mark.dataset.at);
      if (!isNaN(at)) mark.textContent = (mark.dataset.form === "day" ? day : minute).format(at);
    }
  };

  const say = (words) => { document.getElementById("status").textContent = words; };

  // The refresh rests while it is paused or unseen, and while somebody types, ticks, selects or has opened something.
  let paused = kept.get("paused") === "1";
  const isBusy = (live) => {
    const held = document.activeElement;
    const chosen = getSelection();
    return paused || document.hidden || live.querySelector("input:checked") !== null ||
      (held && live.contains(held) && held.matches("input, select, textarea, button, summary")) ||
      (chosen && !chosen.isCollapsed && live.contains(chosen.anchorNode));
  };
  const showPause = (button) => {
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Refresh is paused" : "Pause refresh";
  };
  const togglePause = () => {
    const button = document.getElementById("pause");
    if (!button || button.hidden) return;
    paused = !paused;
    kept.set("paused", paused ? "1" : "");
    showPause(button);
    say(paused ? "The refresh is paused." : "The page refreshes itself again.");
  };

  // Shortcuts: off while somebody types, and off for good if they say so on the page Help.
  const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
  const step = (by) => {
    const all = rows();
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
    next?.querySelector("a").focus();
  };
  let first = "";
  const press = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || kept.get("keys") === "off") return;
    if (event.target.matches("input:not([type=checkbox], [type=radio]), select, textarea")) return;
    const typed = first ? first + " " + event.key : event.key;
    first = "";
    const link = [...document.querySelectorAll("nav a[data-key]")].find((each) => each.dataset.key === typed);
    if (link) link.click();
    else if (typed === "g") first = "g";
    else if (typed === "/") { event.preventDefault(); document.getElementById("find")?.focus(); }
    else if (typed === "p") togglePause();
    else if (typed === "j") step(1);
    else if (typed === "k") step(-1);
  };

  const tickAll = (button) => {
    const boxes = [...button.closest("table").querySelectorAll("tbody input[type=checkbox]")];
    const on = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = on;
  };

  const settings = () => {
    const keys = document.getElementById("keys");
    if (!keys) return;
    document.getElementById("no-keys").hidden = true;
    keys.disabled = false;
    keys.checked = kept.get("keys") !== "off";
    keys.addEventListener("change", () => kept.set("keys", keys.checked ? "" : "off"));
    const schemes = document.getElementById("scheme");
    schemes.disabled = false;
    for (const choice of schemes.querySelectorAll("input")) {
      choice.checked = choice.value === kept.get("scheme");
      choice.addEventListener("change", () => { kept.set("scheme", choice.value); dress(); });
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const live = document.getElementById("live");
    const pause = document.getElementById("pause");
    localise(document);
    settings();
    for (const button of document.querySelectorAll("button.all")) button.hidden = false;
    document.addEventListener("keydown", press);
    document.addEventListener("click", (event) => {
      if (event.target.matches("button.all")) tickAll(event.target);
    });
    if (!live.hasAttribute("hx-get")) return;
    pause.hidden = false;
    showPause(pause);
    pause.addEventListener("click", togglePause);
    document.addEventListener("htmx:config:request", (event) => {
      if (isBusy(live)) event.preventDefault();
    });
    document.addEventListener("htmx:after:swap", () => {
      localise(live);
      for (const button of live.querySelectorAll("button.all")) button.hidden = false;
    });
    document.addEventListener("htmx:error", () => say("The page could not be refreshed."));
  });
})();
