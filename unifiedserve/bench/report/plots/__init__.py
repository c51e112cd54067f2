"""Draw runs as SVG that lies in a page, in its colour of text."""
