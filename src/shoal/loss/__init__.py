"""Privacy losses as pure functions of arrays: shared by mechanisms, ledger and audit."""
