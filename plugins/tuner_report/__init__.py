"""Reports of runs: one as a page of HTML, its pictures in a notebook, and two side by side.

The commands are entry points of the group ``tuner.commands``, the pictures one of ``tuner.run_html``.
"""
