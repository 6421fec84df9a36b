"""Plans of a gateway: how they are sent and made, and what another one changes for a stream."""
