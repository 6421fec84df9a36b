"""Attacks: the posterior beliefs of an adversary who knows the model and sees a release."""
