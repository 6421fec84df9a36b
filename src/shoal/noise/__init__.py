"""Exact samplers on public lattices: integers and rationals only. See PROOF.md beside this file."""
