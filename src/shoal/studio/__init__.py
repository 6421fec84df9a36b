"""The studio: a local page in the browser to measure leaks, choose mechanisms and release data.

`app` serves the page and guards it, `work` runs long things in processes of their own, `rooms` hold
what each page asks of the library, `props` what the views are drawn from. No number is computed
here: the library does, and the views (TypeScript, in `views/`) only draw.
"""
