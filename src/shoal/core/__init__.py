"""The vocabulary every other module speaks. Read `task`, then `plan`."""
