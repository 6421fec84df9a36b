"""Many people's places in one job."""
