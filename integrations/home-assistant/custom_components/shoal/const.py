"""Names of the integration's settings."""

DOMAIN = "shoal"
CONF_PERSON_KEY = "person_key"
CONF_DEVICE_KEY = "device_key"
CONF_PERSON = "person"
CONF_PLAN = "plan"
CONF_STREAM = "stream"
CONF_ENTITY = "entity"
CONF_SECONDS = "seconds"
CONF_KIND = "kind"

DEFAULT_STREAM = "home-assistant"
DEFAULT_SECONDS = 600  # of a slot: as often as a place is shown
MIN_SECONDS = 60
