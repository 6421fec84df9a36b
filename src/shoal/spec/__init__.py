"""The spec, a task and its budget in TOML: `document` is its shape, `request` its meaning."""
