"""Sphinx: the manual as a site with a search. build.py prepares the folder of sources."""
project = "Tessera"
author = "The Tessera Authors"
extensions = ["myst_parser"]
root_doc = "index"
include_patterns = ["*.md", "docs/*.md", "api/*.md"]
html_theme = "furo"
html_title = "Tessera"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
highlight_language = "cpp"
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # blocks of code that show what they print
