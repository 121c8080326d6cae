// Takes what changes of this page as the server sends it; without it the page loads itself again.
"use strict";
const part = document.querySelector("[data-events]");
if (part && window.EventSource) {
  const source = new EventSource(part.dataset.events);
  source.onmessage = (event) => {
    // Nothing moves below somebody who reads it by keyboard, or marks it.
    const selection = getSelection();
    const isRead = part.contains(document.activeElement) || (!selection.isCollapsed && part.contains(selection.anchorNode));
    if (isRead) return;
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    const open = [...part.querySelectorAll("details")].map((box) => box.open);
    part.innerHTML = event.data;
    part.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
    part.querySelectorAll("details").forEach((box, index) => { box.open = open[index] || false; });
  };
}
