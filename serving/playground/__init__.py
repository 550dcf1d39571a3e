"""Provide the playground, a web page on which pretrained policies act and classifiers predict.

page         serves the files in `static/` from `serving.server`
static_page  writes a folder for any web server, in which the browser computes the networks
networks     checks whether the browser can compute a network, and describes it for the page
"""
