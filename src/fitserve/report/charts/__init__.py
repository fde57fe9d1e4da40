"""Charts of a run as Vega-Lite specs, and as static SVG where vl-convert is installed."""
