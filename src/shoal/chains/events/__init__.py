"""Events as secrets of a chain: laws of an answer given each, and what any release tells."""
