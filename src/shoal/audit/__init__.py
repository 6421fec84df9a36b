"""Measure what a release really leaks. `shoal.audit(plan)` is the door; the package is callable.

The public function has the package's name, and importing any module of a package puts the package
itself in that place; so the package answers calls, by handing them to `shoal.audit.exact.audit`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.audit.exact import audit as audit, audit_noise as audit_noise
    from shoal.audit.result import Audit as Audit, Witness as Witness
    from shoal.audit.statistical import audit_neighbours as audit_neighbours

_HOME = {
    "Audit": "result",
    "Witness": "result",
    "audit_neighbours": "statistical",
    "audit_noise": "exact",
}


class _CallablePackage(ModuleType):
    def __call__(self, *plan: Any, **options: Any) -> Any:
        return import_module("shoal.audit.exact").audit(*plan, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "audit":
            return self
        if name in _HOME:
            return getattr(import_module(f"shoal.audit.{_HOME[name]}"), name)
        raise AttributeError(f"module 'shoal.audit' has no attribute {name!r}")


sys.modules[__name__].__class__ = _CallablePackage
