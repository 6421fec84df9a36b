"""The act of sharing rides: files in, cut files out, a ledger and a journal beside them."""
