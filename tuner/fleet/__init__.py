"""Many workers at once: started by Ray, and the proxy that they may ask."""
