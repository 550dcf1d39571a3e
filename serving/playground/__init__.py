"""A web page where trained policies act.

page         serves the files in `static/` from `serving.server`
static_page  writes them as a folder for any web server, with networks that run in the browser
networks     which networks the browser can compute
"""
