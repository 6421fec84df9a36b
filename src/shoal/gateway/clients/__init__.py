"""What talks to the gateway from outside: a typed client, and a bridge from MQTT."""
