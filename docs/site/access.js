// What screen readers and keyboards miss in the theme: a name of the search, and tables that the keyboard can scroll.
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
  for (const buttons of document.querySelectorAll(".md-code__nav")) buttons.setAttribute("role", "presentation");
});
