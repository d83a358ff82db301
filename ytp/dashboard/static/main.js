/* The page: which screen is shown, and the connection that all of them share. */
import { reconnect } from "/umq.js";
import { Overview } from "/dashboard/overview.js";
import { Tail } from "/dashboard/tail.js";
import { History } from "/dashboard/history.js";

const $ = (id) => document.getElementById(id);
const screens = { overview: new Overview(show), tail: new Tail(), history: new History() };

function show(name, detail) {
  for (const tab of document.querySelectorAll("[data-screen]")) {
    const chosen = tab.dataset.screen === name;
    tab.setAttribute("aria-selected", chosen);
    $(tab.dataset.screen).hidden = !chosen;
  }
  screens[name].shown(detail);
}

for (const tab of document.querySelectorAll("[data-screen]")) tab.addEventListener("click", () => show(tab.dataset.screen));

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const name = { 1: "overview", 2: "tail", 3: "history" }[event.key];
  if (name) show(name);
  else if (event.key === "/" && !$("overview").hidden) $("channel-filter").focus();
  else if (event.key === " " && !$("tail").hidden) $("pause").click();
  else return;
  event.preventDefault();
});

/* A token comes in the part of the address that browsers do not send. */
const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

for await (const peer of reconnect("/ws", { hello: token })) {
  $("state").textContent = "connected";
  $("state").classList.add("good");
  const listed = JSON.parse((await peer.call("Bus:list", "{}")).text);
  $("path").textContent = listed.path;
  for (const screen of Object.values(screens)) screen.connected(peer, listed);
  await peer.closed;
  $("state").textContent = "connecting";
  $("state").classList.remove("good");
}
