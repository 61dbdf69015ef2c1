"""Opens pages in a headless browser, and measures what overflows."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

WIDTHS = (320, 390, 1400)  # A small phone, a phone, a desk.
# Shows the page in frames of these widths, and leaves its measures in an attribute. A part that
# scrolls by itself may be wider than the screen.
_HARNESS = """<!doctype html><meta charset="utf-8"><body><script>
const widths = {widths}, results = {{}};
function measure(frame) {{
  const page = frame.contentDocument, width = page.documentElement.clientWidth;
  const wide = [...page.querySelectorAll("body *")].filter(e =>
    e.getBoundingClientRect().right > width + 1 && !e.closest(".scroll, .wide figure"));
  return {{overflow: page.documentElement.scrollWidth - width,
    wide: wide.map(e => e.tagName + " " + e.textContent.slice(0, 40)),
    images: [...page.images].filter(i => !i.complete || i.naturalWidth === 0).length,
    loaded: page.images.length,
    smallest: Math.min(...[...page.querySelectorAll("p, li, td, th")].map(e =>
      parseFloat(frame.contentWindow.getComputedStyle(e).fontSize)))}};
}}
for (const width of widths) {{
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${{width}}px;height:900px;border:0`;
  frame.src = "{name}";
  frame.onload = () => {{
    results[width] = measure(frame);
    document.body.dataset.results = JSON.stringify(results);
  }};
  document.body.append(frame);
}}
</script></body>"""


def measures(page: pathlib.Path) -> dict[int, dict]:
    """The measures of a page at each of `WIDTHS`; skips the test where there is no browser."""
    harness = page.with_name("harness.html")
    harness.write_text(_HARNESS.format(widths=json.dumps(WIDTHS), name=page.name))
    html = dump(harness)
    harness.unlink()
    (found,) = re.findall(r'data-results="([^"]*)"', html)
    results = json.loads(found.replace("&quot;", '"').replace("&amp;", "&"))
    assert set(results) == set(map(str, WIDTHS))
    return {int(width): result for width, result in results.items()}


def dump(page: pathlib.Path) -> str:
    """The page as the browser has it after its scripts; skips the test where there is none.

    The browser is the one in the variable CHROMIUM, or the first of Chromium and Chrome.
    """
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, filter(None, names))), None)
    if browser is None:
        pytest.skip("no browser: install chromium, or name one in the variable CHROMIUM")
    return subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
            "--allow-file-access-from-files", "--timeout=60000", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip


def check_layout(page: pathlib.Path) -> None:
    """Checks that nothing overflows at any width, all pictures load, and texts are legible."""
    for width, found in measures(page).items():
        assert found["wide"] == [], width
        assert found["overflow"] == 0, width
        assert found["loaded"] > 0
        assert found["images"] == 0, "pictures that do not load"
        assert found["smallest"] >= 14, width
