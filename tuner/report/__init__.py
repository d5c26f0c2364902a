"""A run as a page: pictures by matplotlib, as SVG inside one HTML file."""
