"""The browser: see what leaks, choose, release. `shoal studio` opens it on this computer.

`app` serves the page and guards it, `work` runs long things in processes of their own, `rooms` hold
what each page asks of the library, `props` what the views are drawn from. No number is computed
here: the library does, and the views (TypeScript, in `views/`) only draw.
"""
