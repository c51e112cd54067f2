"""Pictures of runs as SVG that lies in a page and takes its colour of text."""
