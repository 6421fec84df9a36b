"""Settings of the service, from the environment (`SHOAL_…`) or a file; every limit is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shoal.core.errors import InputError


class Settings(BaseSettings):
    """How the service runs. Names of variables are those below with SHOAL_ in front."""

    model_config = SettingsConfigDict(env_prefix="SHOAL_", extra="ignore", frozen=True)

    database: str = Field("shoal-gateway.db", description="SQLite file, or postgresql:// URL")
    state_keys: str = Field("", description="NAME:BASE64 keys for states, newest first", repr=False)
    state_key_file: Path = Field(Path("shoal-gateway.key"), description="where else keys are")
    head_file: Path = Field(
        Path("shoal-gateway.head"),
        description="how far the database has come; beside a SQLite file unless given",
    )
    head_seconds: float = Field(10.0, gt=0, le=60, description="seconds between two notes in it")
    checkpoint_hours: float = Field(24.0, gt=0, description="hours between two checkpoints")
    host: str = Field("127.0.0.1", description="address to listen on; TLS is the proxy's")
    port: int = Field(8470, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=64, description="processes; more than 1 needs PostgreSQL")
    threads: int = Field(8, ge=1, le=64, description="database connections of a worker")

    database_seconds: float = Field(
        5.0, ge=0.2, le=60, description="longest call to PostgreSQL; twice that passes on the clock"
    )
    body_bytes: int = Field(1_000_000, ge=1000, description="longest body of a request")
    readings: int = Field(1000, ge=1, description="most readings of one request")
    request_body_seconds: float = Field(
        30.0, gt=0, description="until the body of a request is there"
    )
    request_head_seconds: float = Field(
        10.0, gt=0, description="until the head of a request is there"
    )
    sockets: int = Field(10_000, ge=1, description="open connections of a worker")
    connections: int = Field(100, ge=1, description="open event streams of one key")
    rate: float = Field(200.0, gt=0, description="requests a second of one key, in a worker")
    burst: int = Field(400, ge=1, description="requests of one key at once")
    waiting: int = Field(2000, ge=1, description="writes that may wait; more are turned away")
    page: int = Field(1000, ge=1, le=100_000, description="most outputs of one page")
    history: int = Field(100_000, ge=10, description="outputs kept of one stream")
    history_days: float = Field(0.0, ge=0, description="days outputs are kept; 0: any age")
    dead: int = Field(1000, ge=1, description="refused readings remembered of one stream")
    streams: int = Field(32, ge=1, description="streams of one person")
    people: int = Field(100_000, ge=1, description="people of one space")
    keys: int = Field(1000, ge=1, description="keys of one holder that are not taken back")
    jobs: int = Field(100, ge=1, description="calibrations of one space that are not done")
    plans: int = Field(10_000, ge=1, description="plans of one space")
    early: float = Field(5.0, ge=0, description="seconds a device's clock may be ahead")
    plan_seconds: float = Field(300.0, gt=0, description="longest calibration")
    plan_bytes: int = Field(4_000_000_000, ge=100_000_000, description="memory of a calibration")
    plan_jobs: int = Field(1, ge=1, le=16, description="calibrations at once, in a worker")
    clock_jump: float = Field(
        60.0, gt=0, description="seconds of a step of the clock after which slots are not closed"
    )
    heartbeat: float = Field(15.0, gt=0, description="seconds between comments on event streams")
    tick: float = Field(0.2, gt=0, le=60, description="longest sleep of the slot clock")
    idempotent_hours: float = Field(24.0, gt=0, description="how long answers to POSTs are kept")
    oidc_issuer: str = Field("", description="issuer of bearer tokens for operators and people")
    oidc_audience: str = Field("", description="audience those tokens must have")
    oidc_jwks: str = Field("", description="address of the issuer's keys")
    multiproc: str = Field("", description="folder in which workers share their metrics")


def load_settings(file: Path | None = None, **given: object) -> Settings:
    """Settings from the environment, then `file` (NAME=VALUE lines), with those given on top."""
    if file is not None and not file.exists():
        raise InputError(f"settings file {file} does not exist")
    try:
        kept: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        found = Settings(_env_file=file, **kept)  # type: ignore[call-arg]
    except ValidationError as error:
        first = error.errors()[0]
        name = "SHOAL_" + "_".join(map(str, first["loc"])).upper()
        raise InputError(f"{name} is {first['input']!r}: {first['msg']}") from None
    if "head_file" in found.model_fields_set or "://" in found.database:
        return found
    return found.model_copy(update={"head_file": Path(found.database).with_suffix(".head")})
