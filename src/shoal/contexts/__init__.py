"""Streams of contexts: days, sensitive contexts, checks that show or suppress."""
