"""How the commands show and read days of contexts."""
