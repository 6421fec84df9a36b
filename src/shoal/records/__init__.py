"""Records tied in pairs or groups, and what is learned from them."""
