// Lets CSS show each row of a table as a card on a narrow screen: a cell gets the name of its column.
// Small tables that fit stay tables.
function stack(table, columns) {
  table.classList.remove("stacked");
  const overflows = table.scrollWidth > table.parentElement.clientWidth;
  if (columns > 3 || overflows) table.classList.add("stacked");
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (!names.length) continue;
    for (const row of table.tBodies[0].rows)
      [...row.cells].forEach((cell, i) => {
        if (!cell.textContent.trim() && !cell.querySelector("img, svg")) cell.classList.add("empty");
        // With two columns, the second cell follows from the first.
        else if (i && names.length > 2) cell.dataset.label = names[i];
      });
    stack(table, names.length);
    window.addEventListener("resize", () => stack(table, names.length));
  }
});
