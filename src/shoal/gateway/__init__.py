"""Shoal as a live service: devices push readings, applications see what a proved plan drew.

`advance` holds the promises as pure functions, `store` the one transaction a reading is, `app` the
thin handlers over HTTP. Nothing here computes a probability: that is the families' business.
"""
