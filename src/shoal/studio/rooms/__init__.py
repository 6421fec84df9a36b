"""What each page asks of the library: choices in, props of views out."""
