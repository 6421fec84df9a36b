"""State machines made runnable: clocks, days, readings that come late or not at all."""
