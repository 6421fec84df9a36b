"""Two source trees compared act by act under the same random words."""
