"""What is asked of the data, with its sensitivity and unit."""
