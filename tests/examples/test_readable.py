"""examples/readable.py, on a small site."""

from __future__ import annotations

from examples.readable import Readable
from tests.examples.sandboxes import page
from trawl.testing import SimulatedWeb, simulate

SITE = "http://a.example"


def test_readable_keeps_the_main_part_of_each_page_of_the_site_as_markdown() -> None:
    web = SimulatedWeb()
    main = '<main><h1>Tea</h1><p>Pour <b>hot</b> water, <a href="two">then wait</a>.</p><script>x()</script></main>'
    web.add_page(f"{SITE}/", body=page(f'<title>Tea</title><nav><a href="http://b.example/">menu</a></nav>{main}'))
    web.add_page(f"{SITE}/two", body=page("<title>Two</title><p>Wait.</p><footer>the end</footer>"))
    sim = simulate(Readable, web, url=f"{SITE}/")
    tea = f"# Tea\n\nPour **hot** water, [then wait]({SITE}/two)."
    assert [(item["url"], item["title"], item["text"]) for item in sim.items] == [
        (f"{SITE}/", "Tea", tea),
        (f"{SITE}/two", "Two", "Wait."),
    ]
    assert not sim.of("b.example")
