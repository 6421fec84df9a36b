"""`shoal spec-schema`: the JSON Schema of a spec."""

from __future__ import annotations

import typer

from shoal.cli.show import new_app

app = new_app()


@app.command(epilog="\b\nExample:\n  shoal spec-schema > spec.schema.json")
def spec_schema() -> None:
    """Print the JSON Schema of a spec.

    Editors that know JSON Schema for TOML check and complete a spec with it.
    """
    from shoal.spec.document import schema_text

    typer.echo(schema_text(), nl=False)
