// Lets CSS show each row of a table as a card on a narrow screen: a cell gets the name of its column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (!names.length) continue;
    table.classList.add("stacked");
    for (const row of table.tBodies[0].rows)
      [...row.cells].forEach((cell, i) => {
        // With two columns, the second cell follows from the first.
        if (i && names.length > 2) cell.dataset.label = names[i];
      });
  }
});
