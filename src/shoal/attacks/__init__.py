"""The adversary made runnable: what somebody who knows the model learns from a release."""
