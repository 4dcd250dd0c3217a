"""The fake GPU of aicore.testing as a plugin, so that tests go through discovery, launch and fallback as users do."""
