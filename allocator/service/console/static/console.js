// Adds to htmx: a key for the search field, a switch that pauses the figures, and a banner when the service does
// not answer. All pages can be read without this file.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const live = byId("live-switch");
  const lost = byId("lost");
  let answered = new Date();

  document.addEventListener("keydown", (event) => {
    const field = byId("q");
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || !field || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  const held = () => live && live.getAttribute("aria-pressed") === "false";

  if (live && document.querySelector("[data-poll], [data-series]")) {
    live.hidden = false;
    live.addEventListener("click", () => {
      live.setAttribute("aria-pressed", String(held()));
      live.textContent = held() ? "Paused" : "Live";
    });
  }
  window.consoleRests = () => document.hidden || held();

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.hasAttribute("data-poll") && window.consoleRests()) event.preventDefault();
  });

  const here = (is) => {
    if (is) answered = new Date();
    byId("lost-since").textContent = answered.toLocaleTimeString();
    lost.hidden = is;
  };
  document.addEventListener("htmx:afterOnLoad", () => here(true));
  for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(name, () => here(false));
  }
})();
