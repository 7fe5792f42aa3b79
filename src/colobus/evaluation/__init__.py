"""A trained agent: playing it, scoring it by named protocols, filming it."""
