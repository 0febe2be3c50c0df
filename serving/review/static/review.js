// Keys of the review app, and the sign-in by a personal link. Pages work without it; nothing is sent by a key.
"use strict";

function isTyping(element) {
  return element instanceof HTMLElement && element.matches("input:not([type=radio]):not([type=checkbox]), select, textarea");
}

function moveFocus(step) {
  const cases = [...document.querySelectorAll("a.case")];
  const at = cases.indexOf(document.activeElement);
  const next = cases[Math.max(0, Math.min(cases.length - 1, at < 0 ? 0 : at + step))];
  if (next) next.focus();
}

function choose(id) {
  const radio = document.getElementById(id);
  if (!radio) return;
  const folded = radio.closest("details");
  if (folded) folded.open = true;
  radio.checked = true;
  radio.focus();
}

function openCorrection() {
  const summary = document.getElementById("correct");
  if (!summary) return choose("edit");
  summary.parentElement.open = true;
  summary.focus();
}

function follow(id) {
  const link = document.getElementById(id);
  if (link) link.click();
}

const KEYS = {
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
  "/": () => document.getElementById("words")?.focus(),
  a: () => choose("approve"),
  e: openCorrection,
  r: () => choose("reject"),
  n: () => follow("next"),
  i: () => document.querySelector("a.brand")?.click(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("sign-in");
  const token = location.hash.slice(1);
  if (!form || !/^[0-9a-f]{64}$/.test(token)) return;
  history.replaceState(null, "", location.pathname);  // the token stays out of the history
  if (document.querySelector(".alert")) return;
  document.getElementById("token").value = token;
  form.requestSubmit();
});
