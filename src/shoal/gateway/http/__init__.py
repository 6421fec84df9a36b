"""What stands between the network and the routes: limits of requests, rates and connections."""
