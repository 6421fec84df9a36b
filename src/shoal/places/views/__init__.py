"""How the commands show and read places."""
