// Replaces the figures of a page by newer ones, and says when the service does not answer. All pages work without it.
"use strict";
(() => {
  const here = location.origin + location.pathname; // not location.href, which may hold a name and password
  const lost = document.getElementById("lost");
  let since = new Date();

  const refresh = async () => {
    const answer = await fetch(here);
    if (!answer.headers.get("content-type").startsWith("text/html")) throw new Error("not a page of ours");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(page.querySelector("main"));
    since = new Date();
    lost.hidden = true;
  };
  const failed = () => {
    document.getElementById("since").textContent = since.toLocaleTimeString();
    lost.hidden = false;
  };
  const again = () => {
    const seconds = Number(document.querySelector("main").dataset.refresh);
    if (!seconds) return;
    setTimeout(() => (document.hidden ? Promise.resolve() : refresh().catch(failed)).finally(again), seconds * 1000);
  };
  document.addEventListener("visibilitychange", () => document.hidden || refresh().catch(failed));
  again();
})();
